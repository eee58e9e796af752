package meter

import (
	"context"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blame"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/journal"
)

// Naming maps a cgroup to its container.
type Naming interface {
	// Identify returns the path of the container's topmost cgroup (or of the
	// cgroup itself if no container is known), the container's name and its
	// runtime ("" for a plain cgroup).
	Identify(path string) (top, name, runtime string)
}

// units maps the cgroup IDs of the kernel to the accounted units: a whole
// container, else a cgroup.
type units struct {
	lister *cgroup.Lister
	naming Naming
	ideal  func(path, name string) (uint64, bool) // nil: none configured
	byID   map[uint64]*known
	byPath map[string]identity // by the topmost path
	round  int
	now    func() time.Time
	// refreshed and before are the times of the last refresh and the one before it.
	refreshed, before time.Time
}

type known struct {
	path string // as listed
	top  string
	seen int       // round
	gone time.Time // of the first list without it; zero: none
	// first is the time of its first list; zero once its container is known for good.
	first time.Time
}

type identity struct{ name, runtime string }

// rememberRemoved is how long a removed cgroup keeps its path, and at least until the end of
// the next interval: its last writes reach the disk after its removal.
const rememberRemoved = 2 * time.Minute

func newUnits(tree *cgroup.Tree, naming Naming, ideal func(path, name string) (uint64, bool)) *units {
	return &units{
		lister: tree.NewLister(), naming: naming, ideal: ideal, now: time.Now,
		byID:   make(map[uint64]*known),
		byPath: map[string]identity{account.RootCgroup: {name: account.RootCgroup}},
	}
}

// refresh lists the cgroups again, at the end of an interval.
func (u *units) refresh(ctx context.Context) error {
	u.before, u.refreshed = u.refreshed, u.now()
	return u.list(ctx, false)
}

// meet lists the cgroups thoroughly if events mention an unknown one: it was
// made after the last list, or is the first child of another.
func (u *units) meet(ctx context.Context, events journal.Events) error {
	for _, w := range events.Writes {
		if u.byID[w.Charged] == nil || w.Owner != 0 && u.byID[w.Owner] == nil {
			return u.list(ctx, true)
		}
	}
	for _, c := range events.Commits {
		for id := range c.Dirtied {
			if u.byID[id] == nil {
				return u.list(ctx, true)
			}
		}
	}
	for _, l := range events.Logs {
		if u.byID[l.Cgroup] == nil {
			return u.list(ctx, true)
		}
	}
	for _, c := range events.Calls {
		if u.byID[c.Cgroup] == nil {
			return u.list(ctx, true)
		}
	}
	return nil
}

// meetWaiters does the same for those who wait and whom they wait for.
func (u *units) meetWaiters(ctx context.Context, waiters []blame.Waiter) error {
	for _, w := range waiters {
		for _, c := range append([]blame.Culprit{{Cgroup: w.Cgroup}}, w.Culprits...) {
			if c.Cgroup != blame.Nobody && u.byID[c.Cgroup] == nil {
				return u.list(ctx, true)
			}
		}
	}
	return nil
}

func (u *units) list(ctx context.Context, thorough bool) error {
	list, err := u.lister.List(ctx, thorough)
	if err != nil {
		return err
	}
	u.round++
	moved := false
	for _, c := range list {
		have := u.byID[c.ID]
		if have == nil || have.path != c.Path {
			moved = moved || have != nil
			top := u.top(c.Path)
			have = &known{path: c.Path, top: top, first: u.now()}
			u.byID[c.ID] = have
			_, name, runtime := u.naming.Identify(top)
			u.byPath[top] = identity{name, runtime}
		}
		have.seen, have.gone = u.round, time.Time{}
	}
	u.forget(moved)
	return nil
}

// regroup determines again under which path each cgroup is accounted.
func (u *units) regroup() {
	for _, k := range u.byID {
		u.regroupOne(k)
	}
	u.forget(true)
}

// regroupOne reports whether the path changed.
func (u *units) regroupOne(k *known) (moved bool) {
	before := k.top
	k.top = u.top(k.path)
	if _, known := u.byPath[k.top]; !known {
		_, name, runtime := u.naming.Identify(k.top)
		u.byPath[k.top] = identity{name, runtime}
	}
	return k.top != before
}

// forget drops the cgroups that were removed long ago, and the paths without
// cgroups.
func (u *units) forget(moved bool) {
	for id, k := range u.byID {
		switch {
		case k.seen == u.round:
		case k.gone.IsZero():
			k.gone = u.refreshed
		case u.before.Sub(k.gone) >= rememberRemoved:
			delete(u.byID, id)
			moved = true
		}
	}
	if !moved {
		return
	}
	live := make(map[string]bool, len(u.byID))
	for _, k := range u.byID {
		live[k.top] = true
	}
	for path := range u.byPath {
		if !live[path] && path != account.RootCgroup {
			delete(u.byPath, path)
		}
	}
}

// top is the path under which a cgroup is accounted: the topmost cgroup above
// it that has a weight in the configuration, else that of its container.
func (u *units) top(cgroupPath string) string {
	if u.ideal != nil {
		for i := 1; i <= len(cgroupPath); i++ {
			if i < len(cgroupPath) && cgroupPath[i] != '/' {
				continue
			}
			if _, configured := u.ideal(cgroupPath[:i], cgroupPath[:i]); configured && i > 1 {
				return cgroupPath[:i]
			}
		}
	}
	top, _, _ := u.naming.Identify(cgroupPath)
	return top
}

// of is the path under which a cgroup is accounted.
func (u *units) of(id uint64) string {
	if k, ok := u.byID[id]; ok {
		return k.top
	}
	if id == journal.RootCgroupID {
		return account.RootCgroup
	}
	return account.EndedCgroups
}

// known reports whether of may return a path.
func (u *units) known(path string) bool {
	_, known := u.byPath[path]
	return known || path == account.EndedCgroups
}

// nameOf is the name of an accounted path.
func (u *units) nameOf(path string) string {
	if who, ok := u.byPath[path]; ok {
		return who.name
	}
	return path
}

// alive visits the existing containers and cgroups by path; one with child
// cgroups more than once.
func (u *units) alive(visit func(path string)) {
	for _, k := range u.byID {
		if k.seen == u.round && k.top != account.RootCgroup {
			visit(k.top)
		}
	}
}

// rename looks up the names again periodically: a runtime writes a container's
// name after it made the cgroup. moved: so it did with what says that a cgroup is a
// container's, and cgroups below are accounted there.
func (u *units) rename(now, last time.Time) (renamed time.Time, moved bool) {
	if now.Sub(last) < renameInterval {
		return last, false
	}
	for path := range u.byPath {
		if path == account.RootCgroup {
			continue
		}
		_, name, runtime := u.naming.Identify(path)
		u.byPath[path] = identity{name, runtime}
	}
	for _, k := range u.byID {
		if k.first.IsZero() || !k.gone.IsZero() { // with a cgroup goes what the runtime wrote
			continue
		}
		moved = u.regroupOne(k) || moved
		if now.Sub(k.first) >= identifiedAfter {
			k.first = time.Time{}
		}
	}
	if moved {
		u.forget(true)
	}
	return now, moved
}

const renameInterval = 30 * time.Second

// identifiedAfter is the time after which a runtime has written what says that a cgroup is a
// container's.
const identifiedAfter = time.Minute
