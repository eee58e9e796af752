package cgroup

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/safetext"
	"golang.org/x/sys/unix"
)

var (
	// ErrNoWeights means that no scheduler or controller divides this disk by
	// weights; the message names the remedy.
	ErrNoWeights = errors.New("no scheduler with weights")
	// ErrRootHasNoWeight means that the root cgroup has no weight.
	ErrRootHasNoWeight = errors.New("the root cgroup has no weight")
)

// Setting is the weights of a cgroup according to its files.
type Setting struct {
	// Default is the weight on every disk without its own weight.
	Default uint64 `json:"default"`
	// Device is the weight on this disk alone, 0 for none.
	Device uint64 `json:"device"`
}

// Effective returns the weight that applies to this disk.
func (s Setting) Effective() uint64 {
	if s.Device != 0 {
		return s.Device
	}
	return s.Default
}

// Weights reads and writes the weights of cgroups on one disk, in the unit and
// range of the weight file that applies to it. The ranges of BFQ and io.cost
// differ, and nothing here converts between them.
type Weights struct {
	tree *Tree
	disk disk
	rule weightRule
}

// disk is a block device and the scheduler that serves it.
type disk struct {
	dev       blockdev.Dev
	scheduler string
}

// weightRule is one of the kernel's weight files.
type weightRule struct {
	min, max, def uint64
	// deviceFile accepts "MAJ:MIN WEIGHT"; it may be missing in old kernels.
	deviceFile string
	// defaultFile accepts "WEIGHT", the weight on every disk.
	defaultFile string
	// remove is the word that removes a disk's own weight.
	remove string
	// sticky means that a removed weight of a disk stays in force although no
	// file shows it, and that writing the default removes the own weights of
	// all disks. BFQ behaves so (bfq_io_set_device_weight and
	// bfq_io_set_weight_legacy in block/bfq-cgroup.c; seen on 6.18).
	sticky bool
}

// Weights returns access to the weights on a disk with the given scheduler,
// named as in /sys/block/DEV/queue/scheduler. The error is ErrNoWeights if it
// has none.
func (t *Tree) Weights(dev blockdev.Dev, scheduler string) (*Weights, error) {
	d := disk{dev, scheduler}
	rule, err := t.kernel.weightRule(t, d)
	if found, lookupErr := blockdev.Host.LookupDev(dev); err != nil && lookupErr == nil && !found.HasQueues() {
		err = fmt.Errorf("%w: its driver takes I/O past request queues, where schedulers and io.cost are", ErrNoWeights)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot share %s by weights: %w", d, err)
	}
	return &Weights{t, d, rule}, nil
}

// WeightsIn returns access to the weights on a disk in a file that
// [Weights.File] named, whatever divides the disk now. It restores them after
// the scheduler was switched, or io.cost disabled. scheduler is for messages.
func (t *Tree) WeightsIn(file string, dev blockdev.Dev, scheduler string) (*Weights, error) {
	d := disk{dev, scheduler}
	for _, rule := range t.kernel.weightRules() {
		if rule.defaultFile == file {
			return &Weights{t, d, rule}, nil
		}
	}
	return nil, fmt.Errorf("cannot restore the weights of %s: %.100q is no weight file of cgroup %s", d, file, t.version)
}

// Min is the least weight, 1 or 10.
func (w *Weights) Min() uint64 { return w.rule.min }

// Max is the greatest weight, 1000 or 10000.
func (w *Weights) Max() uint64 { return w.rule.max }

// Default is the weight of a new cgroup.
func (w *Weights) Default() uint64 { return w.rule.def }

// File is the name of the weight file, such as "blkio.bfq.weight".
func (w *Weights) File() string { return w.rule.defaultFile }

// Get reads the weights of a cgroup.
func (w *Weights) Get(cgroupPath string) (Setting, error) {
	lines, err := w.read(cgroupPath)
	return Setting{Default: lines.def, Device: lines.of(w.disk.dev)}, err
}

// Set sets the weight of a cgroup on this disk. It does not change other disks,
// except in kernels before 5.4, which have no weights for single disks (weight
// is then the default on all disks that use this scheduler).
func (w *Weights) Set(cgroupPath string, weight uint64) error {
	if weight < w.rule.min || weight > w.rule.max {
		return fmt.Errorf("cannot set weight %d of cgroup %s on %s: %s accepts %d to %d",
			weight, clean(cgroupPath), w.disk, w.rule.defaultFile, w.rule.min, w.rule.max)
	}
	lines, err := w.read(cgroupPath)
	if err != nil {
		return err
	}
	if !lines.keyed {
		return w.writeDefault(cgroupPath, weight)
	}
	return w.writeDevice(cgroupPath, deviceValue{w.disk.dev, weight})
}

// Restore restores the weights of a cgroup exactly as Get returned them, in the
// files and in force. A cgroup that is gone is ErrVanished. If the disk is
// gone, or has another scheduler now, its own weight is gone with it: nothing
// is left to restore, which is no error.
func (w *Weights) Restore(cgroupPath string, s Setting) error {
	lines, err := w.read(cgroupPath)
	if err != nil {
		return err
	}
	restoreDefault := lines.def != s.Default
	if s.Device == 0 && lines.keyed {
		if w.rule.sticky {
			restoreDefault = true
		} else if lines.of(w.disk.dev) != 0 {
			err := w.write(cgroupPath, w.rule.deviceFile, w.disk.dev.String()+" "+w.rule.remove)
			if err != nil && !w.diskLeft(err) {
				return err
			}
		}
	}
	if restoreDefault {
		if err := w.writeDefault(cgroupPath, s.Default); err != nil {
			return err
		}
		if w.rule.sticky {
			if err := w.putBack(cgroupPath, lines.devices); err != nil {
				return err
			}
		}
	}
	if s.Device == 0 || !lines.keyed {
		return nil
	}
	if err := w.writeDevice(cgroupPath, deviceValue{w.disk.dev, s.Device}); err != nil && !w.diskLeft(err) {
		return err
	}
	return nil
}

// putBack rewrites the weights of the other disks, which writing the default
// removed.
func (w *Weights) putBack(cgroupPath string, devices []deviceValue) error {
	for _, d := range devices {
		if d.dev == w.disk.dev {
			continue
		}
		if err := w.writeDevice(cgroupPath, d); err != nil && !w.diskLeft(err) {
			return err
		}
	}
	return nil
}

// diskLeft reports whether the kernel no longer keeps weights for a disk,
// because it is gone (ENODEV) or has another scheduler (EOPNOTSUPP).
func (w *Weights) diskLeft(err error) bool {
	return !errors.Is(err, ErrVanished) && (errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP))
}

func (w *Weights) read(cgroupPath string) (weightLines, error) {
	if clean(cgroupPath) == RootPath {
		return weightLines{}, fmt.Errorf("cannot read its weight on %s: %w", w.disk, ErrRootHasNoWeight)
	}
	var lines weightLines
	content, err := w.tree.read(cgroupPath, w.rule.deviceFile)
	if err == nil {
		if lines, err = parseWeights(content); err != nil {
			return weightLines{}, w.tree.explain("read", cgroupPath, w.rule.deviceFile, err)
		}
	} else if !errors.Is(err, unix.ENOENT) {
		return weightLines{}, err
	}
	if w.rule.deviceFile != w.rule.defaultFile {
		lines.keyed = err == nil
	}
	if lines.def != 0 {
		return lines, nil
	}
	if content, err = w.tree.read(cgroupPath, w.rule.defaultFile); err != nil {
		if errors.Is(err, unix.ENOENT) {
			err = fmt.Errorf("%w; %s", err, w.tree.missingWeightFile(cgroupPath))
		}
		return weightLines{}, err
	}
	base, err := parseWeights(content)
	if err == nil && base.def == 0 {
		err = errors.New("it has no default weight")
	}
	if err != nil {
		return weightLines{}, w.tree.explain("read", cgroupPath, w.rule.defaultFile, err)
	}
	lines.def = base.def
	return lines, nil
}

// missingWeightFile explains why an existing cgroup has no weight file.
func (t *Tree) missingWeightFile(cgroupPath string) string {
	if t.version == V2 {
		return "its parent does not enable io: " + t.enableIOAbove(cgroupPath)
	}
	return "this kernel does not schedule cgroups by weight (CONFIG_BFQ_GROUP_IOSCHED)"
}

// enableIOAbove is the command that enables io for a cgroup, from the root down: a cgroup can
// enable only what its parent has enabled for it.
func (t *Tree) enableIOAbove(cgroupPath string) string {
	command := ""
	for at := path.Dir(clean(cgroupPath)); ; at = path.Dir(at) {
		enabled, err := t.IOEnabled(at)
		if command != "" && (enabled || err != nil) {
			return command
		}
		if command != "" {
			command = " && " + command
		}
		command = "echo +io > " + safetext.Word(filepath.Join(t.dir(at), subtreeControlFile)) + command
		if at == RootPath {
			return command
		}
	}
}

func (w *Weights) writeDevice(cgroupPath string, d deviceValue) error {
	return w.write(cgroupPath, w.rule.deviceFile, fmt.Sprintf("%s %d", d.dev, d.value))
}

func (w *Weights) writeDefault(cgroupPath string, weight uint64) error {
	return w.write(cgroupPath, w.rule.defaultFile, fmt.Sprint(weight))
}

func (w *Weights) write(cgroupPath, name, value string) error {
	err := w.tree.write(cgroupPath, name, value)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w; %s is no longer served by %s: choose it again: %s",
			err, w.disk.dev, w.disk.scheduler, w.disk.choose(w.disk.scheduler))
	}
	return err
}

// String returns the name of the disk in /sys/block if it has one, else its
// number.
func (d disk) String() string {
	if name, err := blockdev.DeviceName(d.dev); err == nil {
		return name
	}
	return d.dev.String()
}

// choose is the command that sets the scheduler of the disk.
func (d disk) choose(scheduler string) string {
	if name := d.String(); name != d.dev.String() {
		return fmt.Sprintf("echo %s > %s", scheduler, blockdev.QueueFile(name, "scheduler"))
	}
	return fmt.Sprintf("echo %s > /sys/dev/block/%s/queue/scheduler", scheduler, d.dev)
}
