package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/daybook-project/daybook/internal/blockdev"
	"golang.org/x/sys/unix"
)

var (
	// ErrNoWeights: nothing on this disk shares it by weights; the message
	// says what to do.
	ErrNoWeights = errors.New("no scheduler with weights")
	// ErrRootHasNoWeight: the root cgroup has no weight, limits aside.
	ErrRootHasNoWeight = errors.New("the root cgroup has no weight")
)

// Setting is a cgroup's weights as they stand in its files.
type Setting struct {
	// Default is the weight on every disk without one of its own.
	Default uint64 `json:"default"`
	// Device is the weight on this disk alone, 0 for none.
	Device uint64 `json:"device"`
}

// Effective is the weight that rules on this disk.
func (s Setting) Effective() uint64 {
	if s.Device != 0 {
		return s.Device
	}
	return s.Default
}

// Weights reads and writes the weights of cgroups on one disk, in the unit and
// range of the one weight file that rules it: BFQ's and io.cost's ranges
// differ, and nothing here converts one into the other.
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
	// deviceFile takes "MAJ:MIN WEIGHT"; it may be missing in old kernels.
	deviceFile string
	// defaultFile takes "WEIGHT", the weight on every disk.
	defaultFile string
	// remove is the word that takes a disk's own weight away.
	remove string
	// sticky: taking a disk's own weight away leaves it in force though no
	// file shows it any more, and writing the default takes the own weights
	// of all disks away. That is BFQ (bfq_io_set_device_weight and
	// bfq_io_set_weight_legacy in block/bfq-cgroup.c; seen on 6.18).
	sticky bool
}

// Weights gives access to the weights on a disk with the given scheduler, as
// /sys/block/DEV/queue/scheduler names it. ErrNoWeights: it knows none.
func (t *Tree) Weights(dev blockdev.Dev, scheduler string) (*Weights, error) {
	d := disk{dev, scheduler}
	rule, err := t.kernel.weightRule(t, d)
	if err != nil {
		return nil, fmt.Errorf("cannot share %s by weights: %w", d, err)
	}
	return &Weights{t, d, rule}, nil
}

// WeightsIn gives access to the weights on a disk in a file that
// [Weights.File] named, whatever shares the disk now: to put them back when
// the scheduler was switched, or io.cost disabled, since. scheduler is for
// messages.
func (t *Tree) WeightsIn(file string, dev blockdev.Dev, scheduler string) (*Weights, error) {
	d := disk{dev, scheduler}
	for _, rule := range t.kernel.weightRules() {
		if rule.defaultFile == file {
			return &Weights{t, d, rule}, nil
		}
	}
	return nil, fmt.Errorf("cannot put back the weights of %s: %.100q is no weight file of cgroup %s", d, file, t.version)
}

// Min is the least weight, 1 or 10.
func (w *Weights) Min() uint64 { return w.rule.min }

// Max is the greatest weight, 1000 or 10000.
func (w *Weights) Max() uint64 { return w.rule.max }

// Default is the weight of a new cgroup.
func (w *Weights) Default() uint64 { return w.rule.def }

// File is the name of the weight file, such as "blkio.bfq.weight".
func (w *Weights) File() string { return w.rule.defaultFile }

// Get reads a cgroup's weights.
func (w *Weights) Get(cgroupPath string) (Setting, error) {
	lines, err := w.read(cgroupPath)
	return Setting{Default: lines.def, Device: lines.of(w.disk.dev)}, err
}

// Set gives a cgroup a weight on this disk. Other disks are not touched, but
// in kernels before 5.4, which know no weights for single disks (weight is
// then the default on all disks that use this scheduler).
func (w *Weights) Set(cgroupPath string, weight uint64) error {
	if weight < w.rule.min || weight > w.rule.max {
		return fmt.Errorf("cannot set weight %d of cgroup %s on %s: %s takes %d to %d",
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

// Restore puts a cgroup's weights exactly back to what Get said, in the files
// and in force. A cgroup that is gone is ErrVanished. A disk that is gone, or
// that another scheduler serves now, took its own weight with it: nothing is
// left to restore, and that is no error.
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

// putBack writes the weights of the other disks again, which the default took
// away.
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

// diskLeft: the kernel no longer keeps weights for a disk, because it is gone
// (ENODEV) or another scheduler serves it (EOPNOTSUPP).
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

// missingWeightFile says why a cgroup that exists has no weight file.
func (t *Tree) missingWeightFile(cgroupPath string) string {
	if t.version == V2 {
		return fmt.Sprintf("its parent does not enable io: echo +io > %s",
			filepath.Join(filepath.Dir(t.dir(cgroupPath)), "cgroup.subtree_control"))
	}
	return "this kernel does not schedule cgroups by weight (CONFIG_BFQ_GROUP_IOSCHED)"
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

// String names the disk for people: its name in /sys/block where it has one.
func (d disk) String() string {
	if name, err := blockdev.DeviceName(d.dev); err == nil {
		return name
	}
	return d.dev.String()
}

// choose is the command that gives the disk a scheduler.
func (d disk) choose(scheduler string) string {
	if name := d.String(); name != d.dev.String() {
		return fmt.Sprintf("echo %s > /sys/block/%s/queue/scheduler", scheduler, name)
	}
	return fmt.Sprintf("echo %s > /sys/dev/block/%s/queue/scheduler", scheduler, d.dev)
}
