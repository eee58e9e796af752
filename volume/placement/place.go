package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/systemd"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/operation"
)

// Thread is the journal thread of one file system.
type Thread struct {
	// Name names the file system in logs and in the journal's cgroup.
	Name string
	// State is the place of the thread. The caller saves it.
	State *Placed
	// Weight is the parent cgroup's, 1 to 1000; 0 does not change it.
	Weight uint64
	// ReadOnly: it commits nothing, and often there is no thread.
	ReadOnly bool
	// WasPlaced: the thread was placed before. Then it is not moved to a container that
	// has ended.
	WasPlaced bool
	// PID finds the thread.
	PID func() (int, error)
	// Workers finds further threads of the same journal, which go with it; nil: none.
	Workers func() ([]int, error)
	// Disk returns the underlying disk, below the device mapper, which the file system
	// shares with others. Without one there are no weights.
	Disk func() (blockdev.Disk, error)
	// Neighbours share cgroups with this one.
	Neighbours Neighbours
	// Uncorrected finds the weights apart from corrections; nil: no process corrects weights.
	Uncorrected Uncorrected
	Log         *slog.Logger
}

// Uncorrected returns the weights of a cgroup on a disk as they would be without the corrections
// of another process, such as `daybook control`. now is what the weight file named file contains,
// id is the cgroup's ID, and unit is the weight of its slice on the disk; 0 means none. The error
// means that there can be corrections that are not known.
type Uncorrected func(disk blockdev.Disk, file string, id uint64, now cgroup.Setting, unit uint64) (cgroup.Setting, uint64, error)

// Neighbours lists the other placed threads of this host that may share cgroups with one.
type Neighbours interface {
	// Others lists the threads placed since the boot, except the one
	// called name, in a fixed order.
	Others(name string) ([]Neighbour, error)
	// Lock prevents others from setting the weight of a shared cgroup meanwhile.
	Lock(context.Context) (release func(), err error)
}

// Neighbour is another placed thread.
type Neighbour struct {
	State  *Placed
	Weight uint64
	// Leaving: its placement is being rolled back.
	Leaving bool
	// Disk is as in Thread: the weights of a cgroup on different disks are independent.
	Disk func() (blockdev.Disk, error)
}

// tree is the hierarchy of cgroups with the I/O controller.
func tree() (*cgroup.Tree, error) { return cgroup.Known() }

// Plan enters in the record the future place of the thread, and the missing cgroups, which
// will be ours. It changes nothing else.
func (t Thread) Plan() error {
	s := t.State
	if s.Placement == None {
		return nil
	}
	tree, err := tree()
	if err != nil {
		return err
	}
	if s.Placement == Container {
		s.Journal = s.Cgroup
		if _, err := tree.Lookup(s.Cgroup); err != nil {
			return fmt.Errorf("the container's cgroup: %w", err)
		}
		return nil
	}
	s.Slice = systemd.SliceOf(s.Cgroup) != "" && bySystemd()
	s.Journal = s.journal(t.Name)
	if err := s.checkSliceName(); err != nil {
		return err
	}
	if pids, err := tree.Processes(s.Journal); err == nil && len(pids) > 0 {
		return fmt.Errorf("cgroup %s is %w: another process has placed the journal of %s there, such as the keeper of another pool; --cgroup chooses another parent", s.Journal, cause.ErrBusy, t.Name)
	}
	// Read before and after the check, because others attach and detach meanwhile.
	ours := make(map[string]bool)
	if err := t.madeByOthers(ours); err != nil {
		return err
	}
	all := Ancestry(s.Journal)
	for _, at := range all {
		_, err := tree.Lookup(at)
		missing := errors.Is(err, cgroup.ErrVanished)
		if err != nil && !missing {
			return err
		}
		if missing || at == s.Journal || !s.Slice && (at == Root || at == path.Join(Root, t.Name)) {
			ours[at] = true
		}
	}
	if err := t.madeByOthers(ours); err != nil {
		return err
	}
	// A shared cgroup belongs to each of them; the last one removes it.
	for _, at := range all {
		if ours[at] {
			s.MadeCgroups = append(s.MadeCgroups, at)
		}
	}
	return nil
}

// madeByOthers adds the cgroups that were created for other threads.
func (t Thread) madeByOthers(ours map[string]bool) error {
	others, err := t.Neighbours.Others(t.Name)
	for _, other := range others {
		for _, at := range other.State.MadeCgroups {
			ours[at] = true
		}
	}
	return err
}

// Place creates the missing cgroups, gives the parent and the journal their weights
// and moves the thread to its cgroup. Doing it again changes nothing.
func (t Thread) Place(ctx context.Context, run operation.Run) error {
	if t.State.Placement == None {
		return nil
	}
	tree, err := tree()
	if err != nil {
		return err
	}
	return run.Do(ctx,
		operation.Step{Name: "cgroups", Do: func(ctx context.Context) error { return t.makeCgroups(ctx, run, tree) }},
		operation.Step{Name: "weights", Do: func(ctx context.Context) error { return t.setWeights(ctx, run, tree) }},
		operation.Step{Name: "thread", Do: func(context.Context) error { return t.move(tree) }},
	)
}

const (
	// startPatience is how long a thread may take to end that has not started.
	startPatience = 10 * time.Second
	startPause    = 20 * time.Millisecond
)

// move moves the thread to its cgroup. If a mount is killed while it makes its thread, that
// one ends as soon as it runs. Until then it has the name of the next mount's thread, and the
// kernel moves it nowhere (no_cgroup_migration in cgroup_procs_write_start,
// kernel/cgroup/cgroup.c). Then the thread is looked for again.
func (t Thread) move(tree *cgroup.Tree) error {
	if t.ReadOnly {
		return nil
	}
	for deadline := time.Now().Add(startPatience); ; time.Sleep(startPause) {
		err := t.moveFound(tree)
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ESRCH) || time.Now().After(deadline) {
			return err
		}
	}
}

// moveFound moves the thread that is found now.
func (t Thread) moveFound(tree *cgroup.Tree) error {
	pid, err := t.PID()
	if err != nil {
		return err
	}
	now, err := tree.Of(pid)
	if err != nil {
		return err
	}
	if now == t.State.Journal {
		return t.moveWorkers(tree, t.State.Journal)
	}
	if t.State.Placement == Container && t.WasPlaced {
		// It may have ended; its cgroup could not be removed with the thread in it.
		if pids, err := tree.Processes(t.State.Journal); errors.Is(err, cgroup.ErrVanished) || err == nil && len(pids) == 0 {
			return nil
		}
	}
	if err := tree.Move(pid, t.State.Journal); err != nil {
		return err
	}
	t.Log.Info("placed the journal's thread", "volume", t.Name, "pid", pid, "cgroup", t.State.Journal, "from", now)
	t.warnOfLimit(tree)
	return t.moveWorkers(tree, t.State.Journal)
}

// moveWorkers moves the journal's further threads.
func (t Thread) moveWorkers(tree *cgroup.Tree, to string) error {
	if t.Workers == nil {
		return nil
	}
	workers, err := t.Workers()
	if err != nil {
		return err
	}
	for _, pid := range workers {
		if err := tree.Move(pid, to); err != nil {
			return err
		}
	}
	return nil
}

// warnOfLimit warns of a processor limit that the thread is under. The kernel throttles
// kernel threads too (before 6.18), and all who sync the file system wait for this one.
func (t Thread) warnOfLimit(tree *cgroup.Tree) {
	limiting, limit, err := tree.ProcessorLimit(t.State.Journal)
	if err == nil && limiting != "" {
		t.Log.Warn("the journal's thread is under a processor limit, so every sync of the volume can wait for its next period; "+
			"limit the container's own cgroup, with placement parent", "volume", t.Name, "cgroup", limiting, "cpu.max", limit)
	}
}

// makeAttempts limits the retries in the race with the release of another thread, which
// removes the shared parent unless this one's cgroup is in it.
const makeAttempts = 50

// makeCgroups creates the journal's cgroup and its missing ancestors. It starts again if an
// ancestor is removed meanwhile.
func (t Thread) makeCgroups(ctx context.Context, run operation.Run, tree *cgroup.Tree) error {
	if t.State.Placement != Parent {
		return nil
	}
	if t.State.Slice {
		return t.startSlices(ctx, run)
	}
	for attempt := 1; ; attempt++ {
		var steps []operation.Step
		for _, at := range Ancestry(t.State.Journal) {
			steps = append(steps, t.enableIO(tree, at), t.makeCgroup(tree, at))
		}
		err := run.Do(ctx, steps...)
		gone := errors.Is(err, cgroup.ErrVanished) || errors.Is(err, unix.ENOENT)
		if !gone || attempt == makeAttempts {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func (t Thread) makeCgroup(tree *cgroup.Tree, at string) operation.Step {
	s := t.State
	return operation.Step{
		Name: "cgroup",
		Intent: func() (bool, error) {
			if _, err := tree.Lookup(at); !errors.Is(err, cgroup.ErrVanished) || slices.Contains(s.MadeCgroups, at) {
				return false, nil
			}
			// Another thread's, and removed meanwhile.
			s.MadeCgroups = append(s.MadeCgroups, at)
			slices.SortFunc(s.MadeCgroups, func(x, y string) int { return len(x) - len(y) }) // parents first
			if at == s.Cgroup {
				s.WeightBefore = nil // removed with it
			}
			return true, nil
		},
		Do: func(context.Context) error { return tree.Make(at) },
	}
}

// enableIO enables the controller for a cgroup on v2, in its parent, because only then the
// cgroup has weights. Of cgroups that are not ours, it changes only the ancestors of our
// own parent.
func (t Thread) enableIO(tree *cgroup.Tree, at string) operation.Step {
	s, parent := t.State, path.Dir(at)
	wanted := func() (bool, error) {
		made := func(at string) bool { return slices.Contains(s.MadeCgroups, at) }
		if !made(at) || parent != "/" && at == s.Journal && !made(parent) {
			return false, nil
		}
		on, err := tree.IOEnabled(parent)
		return !on, err
	}
	return operation.Step{
		Name: "controller",
		Intent: func() (bool, error) {
			want, err := wanted()
			if err != nil || !want || slices.Contains(s.MadeCgroups, parent) || slices.Contains(s.EnabledIO, parent) {
				return false, err
			}
			s.EnabledIO = append(s.EnabledIO, parent)
			return true, nil
		},
		Do: func(context.Context) error {
			want, err := wanted()
			if err != nil || !want {
				return err
			}
			return tree.EnableIO(parent)
		},
	}
}

// Release removes the cgroups of a file system that is no longer mounted, and
// restores the parent's weight. The thread has ended with the mount. Cgroups that
// others use are not removed.
func (t Thread) Release(ctx context.Context, run operation.Run) error {
	s := t.State
	if s.Placement == None {
		return nil
	}
	tree, err := tree()
	if errors.Is(err, cgroup.ErrNoHierarchy) {
		return nil // no hierarchy, so no cgroups
	}
	if err != nil {
		return err
	}
	if s.Slice {
		return t.stopSlices(ctx, run, tree)
	}
	// Undone in reverse: the weight first, then the cgroups, the children first.
	var steps []operation.Step
	for _, at := range s.EnabledIO {
		steps = append(steps, operation.Step{Name: "controller", Undo: func(context.Context) error {
			err := tree.DisableIO(at)
			if errors.Is(err, cgroup.ErrInUse) || errors.Is(err, cgroup.ErrVanished) {
				return nil
			}
			return err
		}})
	}
	inUse := false // then so are the ancestors
	for _, at := range s.MadeCgroups {
		steps = append(steps, operation.Step{Name: "cgroup", Undo: func(context.Context) (err error) {
			if !inUse {
				inUse, err = t.remove(tree, at)
			}
			return err
		}})
	}
	steps = append(steps, operation.Step{Name: "weights", Undo: func(ctx context.Context) error { return t.resetWeight(ctx, tree) }})
	return run.Undo(ctx, steps...)
}

// remove removes a cgroup that is ours, or reports that others are in it.
func (t Thread) remove(tree *cgroup.Tree, at string) (inUse bool, err error) {
	err = tree.Remove(at)
	if errors.Is(err, cgroup.ErrInUse) {
		// With a container's cgroup, or another volume's, in it.
		t.Log.Info("the cgroup stays: others are in it", "volume", t.Name, "cgroup", at)
		return true, nil
	}
	if err == nil && isOwn(at) {
		if err := tree.RemoveElsewhere(at); err != nil {
			t.Log.Warn("a cgroup that a container left stays", "volume", t.Name, "why", err)
		}
	}
	return false, err
}
