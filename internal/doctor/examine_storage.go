package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/safetext"
)

func examineDisk(f Facts, d Disk) []Finding {
	var found []Finding
	if !d.Statistics {
		found = append(found, missing("statistics", d.Name, "the kernel does not count the disk's I/O", "top shows 0 for the whole disk",
			"echo 1 > "+blockdev.QueueFile(d.Name, "iostats")))
	}
	if len(f.Cgroups.Version) == 0 {
		return found
	}
	cost := d.Cost != nil && d.Cost.Enabled
	switch {
	case d.Weights == "" && isLoop(d) && !d.Asked:
		found = append(found, note("loop", d.Name, "a loop device with the scheduler "+d.Scheduler, "weights act on the disk below its file", ""))
	case d.Weights == "":
		// On cgroup v1 limits do not hold the cgroups below, so weights are needed there.
		severity := missing
		if f.Cgroups.Version == "v2" {
			severity = note
		}
		found = append(found, severity("weights", d.Name, fmt.Sprintf("the scheduler is %s: weights have no effect", d.Scheduler),
			"control then holds the shares by limits (actuator: auto), which do not hold back the journal and react a step later", adviseWeights(f, d)))
	case d.Scheduler == blockdev.BFQ && cost:
		found = append(found, missing("weights", d.Name, "BFQ and io.cost both divide the disk", "control corrects BFQ's weights only; io.cost divides by io.weight",
			fmt.Sprintf("echo '%s enable=0' > %s", d.Dev, safetext.Word(f.Cgroups.Root+"/io.cost.qos"))))
	case cost && !d.Cost.OwnModel:
		found = append(found, missing("weights", d.Name, "io.cost has no model of this disk (ctrl=auto)",
			"where the kernel's table promises more than the disk has, weights do nothing: 70:30 came out as 45:55 (docs/results/guests.md)",
			measureForCost(d)))
	case cost:
		found = append(found, ok("weights", d.Name, "weights hold by io.cost with a model of its own (%s)", d.Weights),
			note("io-cost", d.Name, "io.cost passes metadata and charges it later", "control starts the writeback of metadata early, and sets limits where weights miss the shares (docs/control-reference.md)", ""))
	case d.Scheduler == blockdev.BFQ:
		found = append(found, ok("weights", d.Name, "weights hold by BFQ (%s)%s", d.Weights, tunables(d)))
	default:
		found = append(found, ok("weights", d.Name, "weights hold by %s (%s)", d.Scheduler, d.Weights))
	}
	// Control sets the tunables that it needs, and restores them.
	if !d.Controlled {
		found = append(found, examineTunables(d)...)
	}
	if d.Controlled {
		found = append(found, ok("control", d.Name, "daybook control has a state of this disk: it runs, or \"daybook restore\" restores its weights"))
	}
	return found
}

// examineTunables makes one finding of all that weaken the weights.
func examineTunables(d Disk) []Finding {
	var what, why, commands []string
	for _, weak := range d.Weak {
		if (weak.Name == "strict_guarantees" || weak.Name == "timeout_sync") && !d.Rotational {
			continue // they suit disks that seek
		}
		what = append(what, fmt.Sprintf("%s=%d", weak.Name, weak.Value))
		reason, _, _ := strings.Cut(weak.Why, ", and with eight")
		reason, _, _ = strings.Cut(reason, "; at BFQ's")
		why = append(why, reason)
		commands = append(commands, weak.Command)
	}
	if len(what) == 0 {
		return nil
	}
	return []Finding{note("tunables", d.Name, "tunables that weaken the weights: "+strings.Join(what, " "),
		strings.Join(why, "; ")+"; control sets them while it runs, where shares need it (docs/control.md)", strings.Join(commands, " && "))}
}

func tunables(d Disk) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(d.Tunables)) {
		list = append(list, name+"="+d.Tunables[name])
	}
	if len(list) == 0 {
		return ""
	}
	return "; " + strings.Join(list, " ")
}

// isLoop: what a loop device does goes to the disk below its file.
func isLoop(d Disk) bool { return strings.HasPrefix(d.Name, "loop") }

// adviseWeights is the first command of what is recommended for the disk, "" if its
// kernel has no weights.
func adviseWeights(f Facts, d Disk) string {
	if advice := adviseDisk(f, d); advice.Actuator == "weights" {
		return advice.Commands[0]
	}
	return ""
}

// enableBFQ is the command that makes BFQ the scheduler of a disk.
func enableBFQ(f Facts, d Disk) string {
	command := "echo bfq > " + blockdev.QueueFile(d.Name, "scheduler")
	if slices.Contains(d.Available, blockdev.BFQ) || f.Kernel.BFQ == "built-in" {
		return command
	}
	return "modprobe bfq && " + command
}

// examineFilesystems says of each type what is attributed, in one line for all that
// work alike.
func examineFilesystems(f Facts) []Finding {
	var found []Finding
	var works, threads []string
	others := map[string][]string{}
	for _, fs := range f.Filesystems {
		if problems := examineFilesystem(fs); len(problems) > 0 {
			found = append(found, problems...)
		}
		switch {
		case fs.Journal == "memory":
			works = append(works, fs.name()+" ("+fs.Type+")")
		case fs.Type != "ext4" && fs.Type != "ext3":
			others[fs.Type] = append(others[fs.Type], fs.name())
		case fs.Journal == "internal" || fs.Journal == "external":
			works = append(works, fmt.Sprintf("%s (%s journal, data=%s)", fs.name(), fs.Journal, or(fs.DataMode, "unknown")))
			if fs.ThreadCgroup != "" {
				threads = append(threads, fmt.Sprintf("%s in %s", fs.Thread, fs.ThreadCgroup))
			}
		}
	}
	if len(works) > 0 {
		found = append([]Finding{ok("filesystems", "", "ext4 is attributed: %s", shortList(works, 4))}, found...)
	} else {
		found = append(found, note("filesystems", "", "no ext4 with a journal is mounted", "there is no journal to attribute", ""))
	}
	if len(threads) > 0 {
		found = append(found, ok("journal-threads", "", "%s", shortList(threads, 4)))
	}
	for _, kind := range slices.Sorted(maps.Keys(others)) {
		found = append(found, note("filesystem-type", "", fmt.Sprintf("%s is not attributed: %s", kind, shortList(others[kind], 4)),
			"only ext4 is; its I/O appears as the kernel charges it", ""))
	}
	return found
}

// name is what a person calls it.
func (f Filesystem) name() string {
	if len(f.Mounts) > 0 {
		return f.Mounts[0]
	}
	return f.Device
}

// examineFilesystem says what is worse than on an ext4 on one disk.
func examineFilesystem(fs Filesystem) []Finding {
	var found []Finding
	name := fs.name()
	isExt4 := fs.Type == "ext4" || fs.Type == "ext3"
	on := fmt.Sprintf("it lies on several disks (%s: %s)", strings.Join(fs.Layers, ", "), strings.Join(fs.Disks, ", "))
	switch {
	case len(fs.Disks) < 2:
	case fs.Copies != "":
		found = append(found, missing("several-disks", name, on,
			"top accounts it, and control refuses it: the kernel charges the copies or parity that "+fs.Copies+" writes to the root cgroup, past every weight; "+
				"put the containers' file systems on one disk, on md raid0, raid1 or raid10, or on linear or striped logical volumes", ""))
	default:
		found = append(found, note("several-disks", name, on,
			"top accounts the device itself; control corrects the weights on each of its disks (--device "+fs.Device+" means all of them)", ""))
	}
	for _, layer := range fs.Layers {
		switch kind, _, _ := strings.Cut(layer, " "); {
		case !isExt4:
		case kind == "crypt" || kind == "crypt-integrity":
			found = append(found, note("dm-crypt", name, "it is on dm-crypt or dm-integrity ("+layer+")",
				"its journal, metadata and uncharged data are counted when they are submitted, and can be one interval before the disk's bytes (docs/limits.md)", ""))
		case kind == "mpath":
			found = append(found, note("multipath", name, "it is on a multipath device ("+layer+")", "that was not tested", ""))
		case strings.HasPrefix(kind, "raid") && len(fs.Disks) == 1:
			found = append(found, note("md", name, "it is on md ("+layer+")", "parity and copies are in the disk's bytes, and in no container's (docs/limits.md)", ""))
		}
	}
	if !isExt4 {
		return found
	}
	switch fs.Journal {
	case "none":
		found = append(found, note("no-journal", name, "this ext4 has no journal", "there is nothing to attribute but in-place metadata; a volume has a journal", ""))
	case "external":
		found = append(found, note("external-journal", name, "the journal is on another disk ("+fs.JournalDisk+")",
			"control of that disk does not know which container caused the journal's bytes", ""))
	}
	switch fs.DataMode {
	case "journal":
		found = append(found, note("data-mode", name, "data=journal", "file data passes through the journal, too, and counts there as journal of the container that wrote it", ""))
	case "writeback":
		found = append(found, note("data-mode", name, "data=writeback", "a crash can leave stale blocks in files; Daybook works the same", ""))
	}
	return found
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// shortList joins at most n texts and counts the rest.
func shortList(texts []string, n int) string {
	if len(texts) <= n {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:n], ", "), len(texts)-n)
}
