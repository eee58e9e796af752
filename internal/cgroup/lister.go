package cgroup

import "context"

// Lister lists the cgroups again and again, as Reader does, without their
// counters: cgroups seen before cost one system call and no memory. It is for
// one goroutine.
type Lister struct {
	tree *Tree
	walk walker
	list []Cgroup
}

// NewLister gives a lister of the hierarchy.
func (t *Tree) NewLister() *Lister { return &Lister{tree: t} }

// List gives every cgroup, the root included, parents before children, else in
// no order. The slice is valid until the next List. Cgroups that vanish
// meanwhile are left out.
func (l *Lister) List(ctx context.Context) ([]Cgroup, error) {
	nodes, err := l.walk.walk(ctx, l.tree.root)
	if err != nil {
		return nil, err
	}
	l.walk.forget(func(*node) {})
	l.list = l.list[:0]
	for _, n := range nodes {
		l.list = append(l.list, n.Cgroup)
	}
	return l.list, nil
}
