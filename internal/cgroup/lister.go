package cgroup

import (
	"context"
	"time"
)

// Lister lists the cgroups repeatedly, without their counters, at a lower cost
// than Reader. It is for one goroutine.
type Lister struct {
	tree *Tree
	walk walker
	list []Cgroup
}

// LeafAge is how long a Lister assumes that a cgroup without children has none.
// New children of other cgroups are listed at once.
const LeafAge = 4 * time.Second

// NewLister returns a lister of the hierarchy.
func (t *Tree) NewLister() *Lister { return &Lister{tree: t} }

// List returns every cgroup, including the root, parents before children,
// otherwise in no order. The slice is valid until the next List. Cgroups that
// vanish meanwhile are skipped. The first child of a cgroup that had none can be
// missing for LeafAge, unless thorough is true. Cgroups that cannot be listed do
// not end it; see Skipped.
func (l *Lister) List(ctx context.Context, thorough bool) ([]Cgroup, error) {
	l.walk.leafAge = LeafAge
	if thorough {
		l.walk.leafAge = 0
	}
	nodes, err := l.walk.walk(ctx, l.tree.root)
	if err != nil {
		return nil, err
	}
	l.walk.forget(func(*node) {})
	l.list = l.list[:0]
	for _, n := range nodes {
		l.list = append(l.list, n.Cgroup)
	}
	l.list = append(l.list, l.walk.far...)
	return l.list, nil
}

// Skipped returns the number of cgroups that the last List could not list by a path of their
// own. Their path is too long, or deeper than 128 levels (those are in the list as Beyond, up
// to 1,000), they could not be opened, or there are more than 131,072. The descendants of a
// cgroup that could not be opened are not counted.
func (l *Lister) Skipped() uint64 { return l.walk.skipped }
