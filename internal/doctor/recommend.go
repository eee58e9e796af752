package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/safetext"
)

// Recommendation is the layout that suits a host.
type Recommendation struct {
	Disks   []DiskAdvice   `json:"disks"`
	Volumes []VolumeAdvice `json:"volumes"`
}

// DiskAdvice is what should divide a disk.
type DiskAdvice struct {
	Disk string `json:"disk"`
	// Actuator is "weights" or "limits"; Scheduler is "bfq", "io.cost" or "" for
	// limits.
	Actuator  string   `json:"actuator"`
	Scheduler string   `json:"scheduler"`
	Why       string   `json:"why"`
	Commands  []string `json:"commands"`
}

// VolumeAdvice is where volumes should be, for containers that sync much.
type VolumeAdvice struct {
	// Backing is "lvm", "device" or "image".
	Backing string `json:"backing"`
	// On is the volume group, the disk, or "" for an image.
	On       string   `json:"on"`
	Why      string   `json:"why"`
	Commands []string `json:"commands"`
}

// Recommend chooses a layout.
func Recommend(f Facts) Recommendation {
	r := Recommendation{Disks: []DiskAdvice{}, Volumes: []VolumeAdvice{}}
	for _, d := range f.Disks {
		if carries(f, d) && (!isLoop(d) || d.Asked || d.Weights != "") {
			r.Disks = append(r.Disks, adviseDisk(f, d))
		}
	}
	r.Volumes = append(r.Volumes, adviseVolumes(f))
	return r
}

func adviseDisk(f Facts, d Disk) DiskAdvice {
	run := fmt.Sprintf("daybook control --device %s --dry-run", safetext.Word(d.Name))
	bfq := slices.Contains(d.Available, blockdev.BFQ) || f.Kernel.BFQ == "built-in" || f.Kernel.BFQ == "module"
	costs := d.Cost != nil
	switch {
	case len(d.Available) == 0:
		return DiskAdvice{Disk: d.Name, Actuator: "limits", Why: "its driver takes I/O past request queues: neither BFQ nor io.cost can divide it", Commands: []string{run}}
	case d.Scheduler == blockdev.BFQ:
		a := DiskAdvice{Disk: d.Name, Actuator: "weights", Scheduler: "bfq", Why: "BFQ is the scheduler: keep it", Commands: []string{run}}
		if !d.Rotational {
			a.Why += "; strict_guarantees costs throughput on this disk, which does not seek"
		}
		return a
	case costs && d.Cost.Enabled && d.Cost.OwnModel:
		return DiskAdvice{Disk: d.Name, Actuator: "weights", Scheduler: "io.cost", Why: "io.cost has a model of this disk: keep it", Commands: []string{run}}
	case d.Rotational && bfq:
		return DiskAdvice{Disk: d.Name, Actuator: "weights", Scheduler: "bfq",
			Why:      "the disk says that it seeks: BFQ gives each container slices of time, and its tunables make the weights hold",
			Commands: []string{enableBFQ(f, d), "daybook control --config /etc/daybook/control.yaml --dry-run   # with tunables: docs/control.md"}}
	case costs && d.Rotational:
		return DiskAdvice{Disk: d.Name, Actuator: "weights", Scheduler: "io.cost",
			Why:      "this kernel has no BFQ: io.cost divides the disk, once its model is measured",
			Commands: []string{measureForCost(d), run}}
	case costs:
		return DiskAdvice{Disk: d.Name, Actuator: "weights", Scheduler: "io.cost",
			Why:      "the disk does not seek: io.cost divides it without a queue of its own, once its model is measured; BFQ costs throughput there",
			Commands: []string{measureForCost(d), run}}
	case bfq:
		return DiskAdvice{Disk: d.Name, Actuator: "weights", Scheduler: "bfq",
			Why:      "BFQ is the only one with weights here: io.cost needs cgroup v2",
			Commands: []string{enableBFQ(f, d), run}}
	}
	return DiskAdvice{Disk: d.Name, Actuator: "limits", Why: "this kernel has neither BFQ nor io.cost", Commands: []string{run}}
}

// measureForCost measures a disk for io.cost, and prints the commands that set it up.
func measureForCost(d Disk) string {
	return fmt.Sprintf("daybook calibrate --io-cost %s   # prints the commands that set io.cost up", safetext.Word(d.Name))
}

// minVolumeBytes is the least room that is worth a recommendation.
const minVolumeBytes = 1 << 30

func adviseVolumes(f Facts) VolumeAdvice {
	var group *VolumeGroup
	for _, g := range f.Tools.VolumeGroups {
		if g.FreeBytes >= minVolumeBytes && (group == nil || len(g.Disks) < len(group.Disks) || len(g.Disks) == len(group.Disks) && g.FreeBytes > group.FreeBytes) {
			group = &g
		}
	}
	if group != nil {
		a := VolumeAdvice{Backing: "lvm", On: group.Name,
			Why:      fmt.Sprintf("volume group %s has %d GiB free: a thick logical volume has its own journal and thread on the disk that the weights divide", group.Name, group.FreeBytes>>30),
			Commands: []string{fmt.Sprintf("daybook volume create db1 --backing lvm --volume-group %s --size %dG", group.Name, min(20, group.FreeBytes>>30))}}
		if len(group.Disks) > 1 {
			a.Why += fmt.Sprintf("; it lies on %s, so check that a volume is on one of them (lvs -o +devices)", strings.Join(group.Disks, ", "))
		}
		return a
	}
	for _, d := range f.Disks {
		// A physical volume of LVM has no holder until a logical volume on it is active.
		inGroup := slices.ContainsFunc(f.Tools.VolumeGroups, func(g VolumeGroup) bool { return slices.Contains(g.Disks, d.Name) })
		if d.Unused && !inGroup && d.SizeBytes >= minVolumeBytes {
			return VolumeAdvice{Backing: "device", On: d.Name,
				Why:      fmt.Sprintf("%s seems unused (no partitions, no mount; check with: blkid %s), and no volume group has room", d.Name, blockdev.NodeOf(d.Name)),
				Commands: []string{"daybook volume create db1 --device " + blockdev.NodeOf(d.Name)}}
		}
	}
	return VolumeAdvice{Backing: "image",
		Why:      "there is no volume group with room and no unused disk; an image gains less beside a busy neighbour, so use one only for snapshots (docs/volumes-design.md)",
		Commands: []string{"daybook volume create db1 --size 20G"}}
}
