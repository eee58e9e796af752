package control

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/control/law"
)

// PhysicalDisks are the disks whose schedulers divide the I/O of a device: of a logical
// volume, an encrypted disk and the like, those below it. Each is controlled by itself.
// If a device on several disks writes copies or parity there, the error wraps
// blockdev.ErrSeveralDisks and names them.
func PhysicalDisks(device blockdev.Disk) ([]blockdev.Disk, error) {
	disks, err := device.Physical()
	if err != nil || len(disks) == 1 {
		return disks, err
	}
	copies, err := device.CopiesBelow()
	if err != nil || copies == "" {
		return disks, err
	}
	names := make([]string, len(disks))
	for i, disk := range disks {
		names[i] = disk.Name
	}
	return nil, fmt.Errorf("cannot control %s: it %w (%s), and %s writes copies or parity there, which the kernel charges to the root cgroup, past every weight; "+
		"put the containers' file systems on one disk, on md raid0, raid1 or raid10, or on linear or striped logical volumes",
		device.Name, blockdev.ErrSeveralDisks, strings.Join(names, ", "), copies)
}

// OpenHost opens the weights, limits and tunables of one disk of this host. It
// changes nothing. If the disk's scheduler knows no weights, the error wraps
// cgroup.ErrNoWeights and contains the command that corrects it.
func OpenHost(tree *cgroup.Tree, disk blockdev.Disk) (Host, error) {
	scheduler, err := disk.Scheduler()
	if err != nil {
		return Host{}, err
	}
	return openHost(tree, disk, scheduler.Current)
}

func openHost(tree *cgroup.Tree, disk blockdev.Disk, scheduler string) (Host, error) {
	weights, err := tree.Weights(disk.Dev, scheduler)
	if err != nil {
		return Host{}, err
	}
	return Host{
		Cgroups:        hostCgroups{tree},
		Weights:        hostWeights{weights},
		Units:          systemdUnits(tree, disk.Name, disk.Dev, weights.File()),
		Limits:         hostLimits{tree, disk.Dev},
		Tunables:       hostTunables{disk},
		Scheduler:      scheduler,
		SchedulerInode: disk.SchedulerInode,
		FlatLimits:     tree.Version() == cgroup.V1,
		Writeback:      hostWriteback{disk},
		Warnings:       costWarnings(tree, disk, scheduler),

		WrittenBySystemd: writtenBySystemd(tree),
		CostDivides:      weights.File() == "io.weight",
	}, nil
}

// OpenDisk opens one disk of this host, for Options; see OpenHost. A disk whose
// scheduler knows no weights is controlled by limits, unless actuator is
// ActuatorWeights.
func OpenDisk(tree *cgroup.Tree, disk blockdev.Disk, actuator string) (Disk, error) {
	return openDisk(tree, disk, actuator, nil)
}

// openDisk is OpenDisk after a change of the scheduler: found are the weights that
// cgroups had before, for a scheduler without weights.
func openDisk(tree *cgroup.Tree, disk blockdev.Disk, actuator string, found map[string]uint64) (Disk, error) {
	scheduler, err := disk.Scheduler()
	if err != nil {
		return Disk{}, err
	}
	host, err := openHost(tree, disk, scheduler.Current)
	if errors.Is(err, cgroup.ErrNoWeights) {
		if actuator == ActuatorWeights {
			return Disk{}, fmt.Errorf("%w; or enforce the shares by limits: actuator: auto", err)
		}
		host, err = unweightedHost(tree, disk, scheduler.Current, found), nil
	}
	if err != nil {
		return Disk{}, err
	}
	identity, err := disk.Identity()
	if err != nil {
		return Disk{}, err
	}
	inode, err := disk.Inode()
	if err != nil {
		return Disk{}, err
	}
	return Disk{
		Device: disk.Name, Dev: disk.Dev.String(), DeviceDir: DeviceDir(disk.Name), Host: host, Inode: inode,
		Replaced: func() bool { return replaced(disk, inode) },
		Present: func() error {
			now, err := disk.Identity()
			if err == nil && now != identity {
				err = fmt.Errorf("disk %s is another one now: %w", disk.Name, blockdev.ErrGone)
			}
			return errors.Join(err, disk.Present())
		},
		Carries: func(path string) bool { return carries(disk, path) },
		Reopen: func(actuator string, found map[string]uint64) (Disk, error) {
			return openDisk(tree, disk, actuator, found)
		},
	}, nil
}

// replaced reports whether a disk is another one than that with this inode; 0 means not known.
func replaced(disk blockdev.Disk, inode uint64) bool {
	now, err := disk.Inode()
	return err == nil && inode != 0 && now != inode
}

// carries reports whether a path is on a disk, if that is known: memory, for
// example, is on none.
func carries(disk blockdev.Disk, path string) bool {
	found, err := blockdev.Lookup(path)
	if err != nil {
		return false
	}
	disks, err := found.Physical()
	return err == nil && slices.ContainsFunc(disks, func(d blockdev.Disk) bool { return d.Dev == disk.Dev })
}

// unweightedHost is the host of a disk whose scheduler knows no weights.
func unweightedHost(tree *cgroup.Tree, disk blockdev.Disk, scheduler string, found map[string]uint64) Host {
	return Host{
		Cgroups: hostCgroups{tree}, Weights: noWeights{hostCgroups{tree}, found}, Unweighted: true,
		Limits: hostLimits{tree, disk.Dev}, FlatLimits: tree.Version() == cgroup.V1, Tunables: hostTunables{disk}, Scheduler: scheduler, Writeback: hostWriteback{disk},
	}
}

// costWarnings returns what the user must know of a disk on which io.cost is
// active.
func costWarnings(tree *cgroup.Tree, disk blockdev.Disk, scheduler string) []string {
	cost, err := tree.Cost(disk.Dev)
	if err != nil || !cost.Enabled {
		return nil // none, or cgroup v1
	}
	file := func(name string) string { return filepath.Join(tree.Root(), name) }
	if scheduler == blockdev.BFQ {
		return []string{fmt.Sprintf("io.cost divides %s too, by io.weight, and only BFQ's weights are corrected; "+
			"disable it: echo '%s enable=0' > %s", disk.Name, disk.Dev, file("io.cost.qos"))}
	}
	warnings := []string{"io.cost lets metadata through and takes it off the container's account later (REQ_META, block/blk-iocost.c); " +
		"control starts its writeback at each step, so that it comes evenly; with metadata: kernel it comes in bursts, and shares are correct only over minutes"}
	if !cost.OwnModel {
		warnings = append(warnings, fmt.Sprintf("io.cost takes %s for a disk of the kernel's own tables (ctrl=auto); if that is a faster one, io.cost limits no container and weights have no effect, corrected or not (70:30 came out as 45:55, docs/results/guests.md); "+
			"measure the disk: daybook calibrate --io-cost %s prints the line for %s", disk.Name, disk.Name, file("io.cost.model")))
	}
	return warnings
}

// OpenStateHost opens the files to restore a state with. Unlike OpenHost it also
// accepts a disk that is gone or whose scheduler knows no weights any more: the
// weights in the cgroups' files are still there.
func OpenStateHost(tree *cgroup.Tree, state *State) (Host, error) {
	dev, err := blockdev.ParseDev(state.Dev)
	if err != nil {
		return Host{}, err
	}
	host := Host{Cgroups: hostCgroups{tree}}
	if state.WeightFile == noWeightFile {
		host.Weights, host.Unweighted = noWeights{cgroups: hostCgroups{tree}}, true
	} else {
		weights, err := tree.WeightsIn(state.WeightFile, dev, state.Scheduler)
		if err != nil {
			return Host{}, err
		}
		host.Weights = hostWeights{weights}
		host.Units = systemdUnits(tree, state.Device, dev, state.WeightFile)
	}
	if disk, err := blockdev.Lookup(state.Device); err == nil && disk.Dev == dev {
		host.Limits = hostLimits{tree, dev}
		host.Tunables = hostTunables{disk}
		host.Replaced = replaced(disk, state.DiskInode)
	}
	return host, nil
}

// DeviceDir is the directory of a disk in sysfs, for AcquireLock.
func DeviceDir(device string) string { return filepath.Join(blockdev.Host.Sys, "block", device) }

// vanished returns ErrVanished for an error of a cgroup that is gone.
func vanished(err error) error {
	if errors.Is(err, cgroup.ErrVanished) {
		return fmt.Errorf("%w: %w", ErrVanished, err)
	}
	return err
}

type hostCgroups struct{ tree *cgroup.Tree }

func (h hostCgroups) List() ([]Cgroup, error) {
	found, err := h.tree.List(context.Background())
	if err != nil {
		return nil, err
	}
	list := make([]Cgroup, 0, len(found))
	for _, c := range found {
		if c.Path != cgroup.RootPath {
			list = append(list, Cgroup{Path: c.Path, ID: c.ID})
		}
	}
	return list, nil
}

func (h hostCgroups) ID(path string) (uint64, error) {
	c, err := h.tree.Lookup(path)
	return c.ID, vanished(err)
}

// CgroupIDs returns the IDs of a tree's cgroups, for LoadIdeals.
func CgroupIDs(tree *cgroup.Tree) func(path string) (uint64, error) { return hostCgroups{tree}.ID }

type hostWeights struct{ weights *cgroup.Weights }

func (h hostWeights) File() string     { return h.weights.File() }
func (h hostWeights) Range() law.Range { return law.Range{Min: h.weights.Min(), Max: h.weights.Max()} }

func (h hostWeights) Get(path string) (Setting, error) {
	setting, err := h.weights.Get(path)
	return setting, vanished(err)
}

func (h hostWeights) Set(path string, weight uint64) error {
	return vanished(h.weights.Set(path, weight))
}

func (h hostWeights) Restore(path string, s Setting) error {
	return vanished(h.weights.Restore(path, s))
}

// noWeights replaces the weight files where there are none. It writes nothing.
// Every cgroup has the weight that was found under the scheduler before, or else
// the same one.
type noWeights struct {
	cgroups hostCgroups
	found   map[string]uint64
}

// noWeightFile is the name of the weight file in the State of such a disk.
const noWeightFile = "limits"

// plainWeight is the weight of every cgroup: the default of io.weight.
const plainWeight = 100

func (noWeights) File() string     { return noWeightFile }
func (noWeights) Range() law.Range { return law.Range{Min: 1, Max: 10_000} }

func (n noWeights) Get(path string) (Setting, error) {
	_, err := n.cgroups.ID(path)
	weight := n.found[path]
	if !n.Range().Holds(weight) {
		weight = plainWeight
	}
	return Setting{Default: weight}, err
}

func (n noWeights) Set(path string, _ uint64) error      { _, err := n.cgroups.ID(path); return err }
func (n noWeights) Restore(path string, _ Setting) error { _, err := n.cgroups.ID(path); return err }

type hostLimits struct {
	tree *cgroup.Tree
	dev  blockdev.Dev
}

func (h hostLimits) Get(path string) (Limits, error) {
	limit, err := h.tree.Limits(path, h.dev)
	return Limits{Read: limit.ReadBps, Write: limit.WriteBps}, vanished(err)
}

func (h hostLimits) Set(path string, limits Limits) error {
	limit, err := h.tree.Limits(path, h.dev)
	if err != nil {
		return vanished(err)
	}
	limit.ReadBps, limit.WriteBps = limits.Read, limits.Write
	return vanished(h.tree.SetLimit(path, h.dev, limit))
}

type hostTunables struct{ disk blockdev.Disk }

func (h hostTunables) Scheduler() (string, error) {
	s, err := h.disk.Scheduler()
	return s.Current, err
}

func (h hostTunables) Get(name string) (string, error) {
	if name == nrRequests {
		if err := h.weighted(); err != nil {
			return "", err
		}
		return h.disk.Queue(name)
	}
	return h.disk.Tunable(name)
}

func (h hostTunables) Set(name, value string) error {
	if name == nrRequests {
		if err := h.weighted(); err != nil {
			return err
		}
		// For a disk that takes one request at a time, the kernel chooses fewer. It
		// accepts no such number from user space (BLKDEV_MIN_RQ,
		// include/linux/blkdev.h).
		if number, err := strconv.ParseUint(value, 10, 64); err == nil {
			value = strconv.FormatUint(max(number, tunableRange[nrRequests].min), 10)
		}
		return h.disk.SetQueue(name, value)
	}
	return h.disk.SetTunable(name, value)
}

// weighted returns blockdev.ErrNoTunable if BFQ is not the scheduler. The kernel
// chooses the number of requests again at each change of the scheduler
// (blk_mq_init_sched, block/blk-mq-sched.c), so there is nothing to restore then.
func (h hostTunables) weighted() error {
	scheduler, err := h.Scheduler()
	if err == nil && scheduler != blockdev.BFQ {
		err = fmt.Errorf("scheduler %s of %s: %q: %w", scheduler, h.disk.Name, nrRequests, blockdev.ErrNoTunable)
	}
	return err
}
