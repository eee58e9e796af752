package placement

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/systemd"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/operation"
)

// sliceRoot is the slice that has the default parents, where systemd makes them.
const sliceRoot = "daybook"

// units is systemd, which makes slices.
var units systemd.Manager

// bySystemd says whether systemd is the owner of cgroups on this host: it is init, and
// cgroups are of version 2. There, runtimes make containers as its units.
func bySystemd() bool {
	if !systemd.Running() {
		return false
	}
	tree, err := tree()
	return err == nil && tree.Version() == cgroup.V2
}

// DefaultParent is the parent cgroup of the file system called name: the slice
// daybook-NAME.slice where systemd owns the cgroups (v2), else /daybook/NAME.
func DefaultParent(name string) string {
	if !bySystemd() {
		return Root + "/" + name
	}
	return sliceByName(sliceRoot + "-" + systemd.EscapeSlice(name) + ".slice")
}

// sliceByName gives the path of a slice that is named without it; other texts stay.
func sliceByName(text string) string {
	if strings.Contains(text, "/") {
		return text
	}
	if at, err := systemd.SliceCgroup(text); err == nil {
		return at
	}
	return text
}

// ParentName is the parent cgroup as the option --cgroup-parent of runtimes takes it: the
// name of a slice, or a path.
func (s Placed) ParentName() string {
	if slice := s.SliceName(); slice != "" {
		return slice
	}
	return s.Cgroup
}

// SliceName is the parent slice; "" if the parent is no slice.
func (s Placed) SliceName() string {
	if !s.Slice {
		return ""
	}
	return systemd.SliceOf(s.Cgroup)
}

// journal is the cgroup for the thread of the file system called name, in the parent. In
// a slice it is a slice, too: systemd keeps the controller of I/O enabled for its units
// alone, and refuses to have a kernel thread in a scope.
func (s Placed) journal(name string) string {
	slice := s.SliceName()
	if slice == "" {
		return JournalCgroup(s.Cgroup, name)
	}
	component := "-journal"
	if s.Cgroup != sliceByName(sliceRoot+"-"+systemd.EscapeSlice(name)+".slice") {
		component += systemd.EscapeSlice("-" + name)
	}
	return path.Join(s.Cgroup, strings.TrimSuffix(slice, ".slice")+component+".slice")
}

// checkSliceName refuses a slice for the thread whose name is too long for systemd. A "-" in
// the name of a volume takes four bytes in it.
func (s Placed) checkSliceName() error {
	if length := len(path.Base(s.Journal)); s.Slice && length > systemd.MaxUnitName {
		return fmt.Errorf("%w name: the slice of its jbd2 thread would have a name of %d bytes, and systemd allows %d; --placement none uses no slice", cause.ErrInvalid, length, systemd.MaxUnitName)
	}
	return nil
}

// startSlices starts the journal's slice, and with it its parents.
func (t Thread) startSlices(ctx context.Context, run operation.Run) error {
	return run.Do(ctx, operation.Step{Name: "slice", Do: func(ctx context.Context) error {
		return units.StartSlice(ctx, systemd.SliceOf(t.State.Journal), "Daybook: the journal of "+t.Name)
	}})
}

// stopSlices stops the journal's slice. systemd stops the parents that it started for
// it when nothing is left in them.
func (t Thread) stopSlices(ctx context.Context, run operation.Run, tree *cgroup.Tree) error {
	return run.Undo(ctx, operation.Step{Name: "slice", Undo: func(ctx context.Context) error {
		pids, err := tree.ProcessesBelow(t.State.Journal)
		if err != nil && !errors.Is(err, cgroup.ErrVanished) {
			return err
		}
		if len(pids) > 0 {
			t.Log.Info("the slice stays: others are in it", "volume", t.Name, "cgroup", t.State.Journal)
			return nil
		}
		return units.StopSlice(context.WithoutCancel(ctx), systemd.SliceOf(t.State.Journal))
	}}, operation.Step{Name: "weights", Undo: func(ctx context.Context) error { return t.resetWeight(ctx, tree) }})
}

// onDisk has the weights of slices on a disk.
func onDisk(disk blockdev.Disk, file string) systemd.DiskWeights {
	return systemd.DiskWeights{Manager: &units, Devices: blockdev.Host, Path: disk.Node(), Dev: disk.Dev, File: file}
}

// putWeight makes weight that of a cgroup of ours: by its slice, or in its files.
func (s Placed) putWeight(weights *cgroup.Weights, disk blockdev.Disk, at string, weight uint64) error {
	if !s.Slice {
		return weights.Set(at, weight)
	}
	slice, slices := systemd.SliceOf(at), onDisk(disk, weights.File())
	if err := slices.Set(slice, slices.Of(weight)); err != nil {
		return goneSlice(err)
	}
	// When systemd answers again, it has written the files.
	if _, err := slices.Get(slice); err != nil {
		return goneSlice(err)
	}
	now, err := weights.Get(at)
	if err != nil || now.Effective() == weight {
		return err
	}
	// systemd before 251 does not write such weights for BFQ.
	return weights.Set(at, weight)
}

// unitWeight is the weight that the parent slice has on the disk; 0: none.
func (s Placed) unitWeight(weights *cgroup.Weights, disk blockdev.Disk) (uint64, error) {
	if !s.Slice {
		return 0, nil
	}
	weight, err := onDisk(disk, weights.File()).Get(s.SliceName())
	return weight, goneSlice(err)
}

// restoreUnitWeight restores the parent slice's weight on the disk, if that is ours, and reports
// whether it did. now is the weight without corrections; ours is as in the cgroup's files.
func (s Placed) restoreUnitWeight(disk blockdev.Disk, now, ours uint64) (restored bool, err error) {
	slices := onDisk(disk, s.WeightBefore.File)
	if !s.Slice || disk.Name == "" || now != slices.Of(ours) {
		return false, nil
	}
	slice := s.SliceName()
	if err := slices.Set(slice, s.WeightBefore.Unit); err != nil {
		return false, goneSlice(err)
	}
	// When systemd answers again, it has written the files.
	_, err = slices.Get(slice)
	return true, goneSlice(err)
}

// goneSlice gives the end of a slice the name that the end of a cgroup has.
func goneSlice(err error) error {
	if err != nil && systemd.IsGone(err) {
		return errors.Join(cgroup.ErrVanished, err)
	}
	return err
}
