package adopt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/volume/placement"
)

// Entry is one file system that the user wants to be adopted.
type Entry struct {
	// Mountpoint is where the file system is mounted.
	Mountpoint string
	// Cgroups and Containers name its users. With more than one the journal is in a
	// neutral cgroup.
	Cgroups, Containers []string
	// Weight is that of the parent cgroup; 0 leaves it.
	Weight uint64
	// Once: see Wanted.
	Once bool
}

// Times of a [Watch].
const (
	// WatchInterval is how often placements are checked: the removal of a container's
	// cgroup waits at most so long (see volume.KeepInterval).
	WatchInterval = 50 * time.Millisecond
	// resolveInterval is how often mounts and containers are looked up again.
	resolveInterval = time.Second
	// usersInterval is how often other users of a file system are looked for, which
	// reads all processes.
	usersInterval = 5 * time.Second
)

// Watch keeps the journals of entries until it is closed.
type Watch struct {
	keeper  *Keeper
	log     *slog.Logger
	survey  *survey
	entries []*watched
	// began is when this round of looks at all entries began.
	began time.Time
}

type watched struct {
	Entry
	wanted *Wanted // nil: it was never resolved
	// resolved is the start of the round in which it was resolved.
	resolved time.Time
	// failure is why it could not be resolved the last time, unplaced why its journal could not be
	// placed then.
	failure, unplaced error
	said              string
	// frozenSaid: warnOfFreezing has warned.
	frozenSaid bool
	// weight is that of several users, which users names.
	weight SharedWeight
	users  string
}

// NewWatch returns a watch that places nothing yet.
func NewWatch(keeper *Keeper, entries []Entry, log *slog.Logger) *Watch {
	w := &Watch{keeper: keeper, log: log, survey: newSurvey()}
	for _, entry := range entries {
		w.entries = append(w.entries, &watched{Entry: entry})
	}
	return w
}

// Run keeps until ctx ends, and then undoes all.
func (w *Watch) Run(ctx context.Context) error {
	ticker := time.NewTicker(WatchInterval)
	defer ticker.Stop()
	for {
		w.round(ctx, w.say)
		select {
		case <-ctx.Done():
			return w.keeper.Close(context.WithoutCancel(ctx))
		case <-ticker.C:
		}
	}
}

// Place places all entries now. An error with one does not stop the others.
func (w *Watch) Place(ctx context.Context) error {
	var failures []error
	w.round(ctx, func(entry *watched, err error) {
		entry.said = text(err)
		failures = append(failures, err)
	})
	return errors.Join(failures...)
}

// round looks at each entry once.
func (w *Watch) round(ctx context.Context, done func(*watched, error)) {
	w.began = time.Now()
	for _, entry := range w.entries {
		done(entry, w.once(ctx, entry))
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// say logs a new state of an entry once.
func (w *Watch) say(entry *watched, err error) {
	now := text(err)
	if now == entry.said {
		return
	}
	entry.said = now
	switch {
	case err == nil:
	case errors.Is(err, ErrDeserted), errors.Is(err, ErrNoContainer), IsUnmounted(err):
		w.log.Info("waiting", "mountpoint", entry.Mountpoint, "why", now)
	default:
		w.log.Warn("cannot keep the journal", "mountpoint", entry.Mountpoint, "why", now)
	}
}

// once resolves an entry where that is due, and keeps it.
func (w *Watch) once(ctx context.Context, entry *watched) error {
	if w.began.Sub(entry.resolved) >= resolveInterval {
		var wanted Wanted
		// Also after an error: mounts and containers are many.
		entry.resolved = w.began
		if wanted, entry.failure = w.resolve(ctx, entry); entry.failure == nil {
			if err := w.change(ctx, entry, wanted); err != nil {
				return err
			}
		}
	}
	failure := entry.failure
	switch {
	case entry.wanted == nil:
		return failure
	case errors.Is(failure, ErrNoContainer):
		return errors.Join(failure, w.keeper.Release(ctx, entry.wanted.Filesystem.Name))
	}
	// A placement that fails makes and removes a record: it is tried again with the next look.
	if entry.unplaced != nil && !entry.resolved.Equal(w.began) {
		return errors.Join(failure, entry.unplaced)
	}
	// What is placed is kept, whatever prevents another look: otherwise it would stay when its
	// container ends, whose cgroup could not be removed.
	wanted := *entry.wanted
	wanted.Unmounted = IsUnmounted(failure)
	err := w.keeper.Keep(ctx, wanted)
	name := entry.wanted.Filesystem.Name
	if entry.unplaced = nil; err != nil && !w.keeper.keeps(name) && !errors.Is(err, ErrDeserted) && !IsUnmounted(err) {
		entry.unplaced = err
	}
	if err == nil && w.keeper.keeps(name) && entry.resolved.Equal(w.began) {
		w.warnOfFreezing(entry)
	}
	if errors.Is(err, ErrReplaced) {
		err = errors.Join(err, w.keeper.Release(ctx, entry.wanted.Filesystem.Name))
	}
	return errors.Join(failure, err)
}

// warnOfFreezing warns once of a container that cannot be frozen with the journal's thread. The
// kernel freezes no kernel thread. On cgroup v2 a cgroup without processes of its own waits for all
// below it (cgroup_propagate_frozen in kernel/cgroup/freezer.c).
func (w *Watch) warnOfFreezing(entry *watched) {
	if entry.frozenSaid || entry.wanted.Neutral || entry.Once {
		return
	}
	tree, err := cgroup.Known()
	if err != nil || tree.Version() != cgroup.V2 {
		return
	}
	if pids, err := tree.Processes(entry.wanted.Cgroup); err != nil || len(pids) > 0 {
		return
	}
	entry.frozenSaid = true
	w.log.Warn("the container cannot be frozen while it has the journal's thread: docker pause, and docker commit without --pause=false, fail",
		"mountpoint", entry.Mountpoint, "cgroup", entry.wanted.Cgroup)
}

// change makes something else wanted of an entry.
func (w *Watch) change(ctx context.Context, entry *watched, wanted Wanted) error {
	if was := entry.wanted; was != nil && !entry.wants(wanted.Filesystem) {
		if err := w.keeper.Release(ctx, was.Filesystem.Name); err != nil {
			entry.resolved = time.Time{}
			return err
		}
	}
	for _, other := range w.entries {
		if other.wants(wanted.Filesystem) { // it was mounted there before
			other.wanted = nil
		}
	}
	entry.wanted = &wanted
	return nil
}

// holder is another entry that has a file system by another mount point: the journal would go to
// and fro between the two. nil: none has it.
func (w *Watch) holder(entry *watched, f Filesystem) *watched {
	for _, other := range w.entries {
		if other != entry && other.wants(f) {
			if now, err := At(other.Mountpoint); err == nil && now.Name == f.Name {
				return other
			}
		}
	}
	return nil
}

func (e *watched) wants(f Filesystem) bool {
	return e.wanted != nil && e.wanted.Filesystem.Name == f.Name
}

// resolve finds the file system and the cgroups of an entry.
func (w *Watch) resolve(ctx context.Context, entry *watched) (Wanted, error) {
	f, err := At(entry.Mountpoint)
	if err != nil {
		return Wanted{}, err
	}
	if other := w.holder(entry, f); other != nil {
		return Wanted{}, fmt.Errorf("cannot adopt %s: %s is the same file system (%s), and is listed too; list one of them, with all users", entry.Mountpoint, other.Mountpoint, f.Name)
	}
	wanted := Wanted{Filesystem: f, Weight: entry.Weight, Once: entry.Once}
	var users []string
	for _, at := range entry.Cgroups {
		// A slice may be named without its path.
		_, at, err := placement.Complete(placement.Parent, at, f.Name)
		if err != nil {
			return Wanted{}, err
		}
		users = append(users, at)
	}
	for _, name := range entry.Containers {
		at, err := w.survey.container(ctx, name, w.began)
		if err != nil {
			if len(entry.Containers)+len(entry.Cgroups) > 1 && errors.Is(err, ErrNoContainer) {
				continue // the others remain
			}
			return Wanted{}, err
		}
		users = append(users, at)
		wanted.For = name
	}
	others, err := w.survey.usersOf(f.Dev, w.began)
	if err != nil {
		return Wanted{}, err
	}
	for _, other := range others {
		if !slices.ContainsFunc(users, func(at string) bool { return within(other, at) }) {
			users = append(users, other)
		}
	}
	if wanted.For == "" && len(entry.Cgroups) > 0 {
		wanted.For = entry.Cgroups[0]
	}
	// One that is named twice is one.
	slices.Sort(users)
	switch users = slices.Compact(users); len(users) {
	case 0:
		return Wanted{}, fmt.Errorf("%w is called %q", ErrNoContainer, entry.Containers)
	case 1:
		wanted.Cgroup = users[0]
		return wanted, nil
	}
	wanted.Neutral = true
	wanted.For = strings.Join(users, ", ")
	if wanted.Weight == 0 {
		if entry.users != wanted.For {
			entry.weight, entry.users = SharedWeight{}, wanted.For
		}
		if wanted.Weight, err = entry.weight.Get(f.Dev, users, w.log); err != nil {
			return wanted, err
		}
	}
	return wanted, nil
}

// within says that a cgroup is another one or below it.
func within(at, parent string) bool {
	return at == parent || len(at) > len(parent) && at[:len(parent)] == parent && at[len(parent)] == '/'
}
