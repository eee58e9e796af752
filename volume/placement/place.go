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
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/operation"
)

// Thread is the journal thread of one file system.
type Thread struct {
	// Name is the file system's, in logs and in the journal's cgroup.
	Name string
	// State is where the thread is kept. It is the caller's, who saves it.
	State *Placed
	// Weight is the parent cgroup's, 1 to 1000; 0 leaves it as it is.
	Weight uint64
	// ReadOnly: it commits nothing, and often there is no thread.
	ReadOnly bool
	// WasPlaced: the thread was placed before. Then a container that has ended gets its
	// thread no more.
	WasPlaced bool
	// PID finds the thread.
	PID func() (int, error)
	// Disk is where the file system's I/O meets that of others, below the
	// device mapper. Without one there are no weights.
	Disk func() (blockdev.Disk, error)
	// Neighbours share cgroups with this one.
	Neighbours Neighbours
	Log        *slog.Logger
}

// Neighbours lists the other placed threads of this host, as far as they may
// share cgroups with one.
type Neighbours interface {
	// Others are those placed since the start of the host, without the thread
	// called name, in an order that does not change.
	Others(name string) ([]Neighbour, error)
	// Lock keeps others from giving a shared cgroup its weight meanwhile.
	Lock(context.Context) (release func(), err error)
}

// Neighbour is another placed thread.
type Neighbour struct {
	State  *Placed
	Weight uint64
	// Leaving: its placement is being rolled back.
	Leaving bool
}

// tree is the hierarchy of cgroups that carries I/O.
func tree() (*cgroup.Tree, error) { return cgroup.Find() }

// Plan enters in the record where the thread will be, and which cgroups are missing
// and so will be ours. It changes nothing else.
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
	s.Journal = JournalCgroup(s.Cgroup, t.Name)
	if pids, err := tree.Processes(s.Journal); err == nil && len(pids) > 0 {
		return fmt.Errorf("cgroup %s is %w: is another pool's volume %s attached? --cgroup chooses another parent", s.Journal, cause.ErrBusy, t.Name)
	}
	// Both before and after the look, for others attach and detach meanwhile.
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
		if missing || at == s.Journal || at == Root || at == path.Join(Root, t.Name) {
			ours[at] = true
		}
	}
	if err := t.madeByOthers(ours); err != nil {
		return err
	}
	// What several share is each one's, and goes with the last.
	for _, at := range all {
		if ours[at] {
			s.MadeCgroups = append(s.MadeCgroups, at)
		}
	}
	return nil
}

// madeByOthers adds the cgroups that were created for others.
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

// move moves the thread to its cgroup.
func (t Thread) move(tree *cgroup.Tree) error {
	if t.ReadOnly {
		return nil
	}
	pid, err := t.PID()
	if err != nil {
		return err
	}
	now, err := tree.Of(pid)
	if err != nil || now == t.State.Journal {
		return err
	}
	if t.State.Placement == Container && t.WasPlaced {
		// It may have ended; the thread would hold up its removal.
		if pids, err := tree.Processes(t.State.Journal); errors.Is(err, cgroup.ErrVanished) || err == nil && len(pids) == 0 {
			return nil
		}
	}
	if err := tree.Move(pid, t.State.Journal); err != nil {
		return err
	}
	t.Log.Info("placed the jbd2 thread", "volume", t.Name, "pid", pid, "cgroup", t.State.Journal, "from", now)
	return nil
}

// makeAttempts bounds the race with the release of another thread, which removes
// the parent that both share until this one's cgroup is in it.
const makeAttempts = 50

// makeCgroups creates what is missing of the journal's cgroup and its ancestors,
// again if an ancestor is removed meanwhile.
func (t Thread) makeCgroups(ctx context.Context, run operation.Run, tree *cgroup.Tree) error {
	if t.State.Placement != Parent {
		return nil
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
			// It was somebody else's, and was removed since.
			s.MadeCgroups = append(s.MadeCgroups, at)
			slices.SortFunc(s.MadeCgroups, func(x, y string) int { return len(x) - len(y) }) // parents first
			if at == s.Cgroup {
				s.WeightBefore = nil // went with it
			}
			return true, nil
		},
		Do: func(context.Context) error { return tree.Make(at) },
	}
}

// enableIO turns the controller on for a cgroup, by its parent, on v2: a cgroup has
// weights only there. Of cgroups that are not ours, only those on the way to our
// own parent get it; the children of the user's keep what they have.
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
// others use stay.
func (t Thread) Release(ctx context.Context, run operation.Run) error {
	s := t.State
	if s.Placement == None {
		return nil
	}
	tree, err := tree()
	if errors.Is(err, cgroup.ErrNoHierarchy) {
		return nil // none now, so nothing in it
	}
	if err != nil {
		return err
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

// remove removes a cgroup that is ours, or says that others are in it.
func (t Thread) remove(tree *cgroup.Tree, at string) (inUse bool, err error) {
	err = tree.Remove(at)
	if errors.Is(err, cgroup.ErrInUse) {
		// A container's cgroup, or another volume's: theirs now.
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
