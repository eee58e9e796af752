package control

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/control/law"
)

// Unit is a cgroup whose share is enforced: a container, or a plain cgroup that the
// configuration names.
type Unit struct {
	// Cgroup is its clean, absolute path; never "/".
	Cgroup string
	// Configured is the weight in the configuration; 0 for none.
	Configured uint64
	// Found is the weight before Daybook changed it; it is used if none is
	// configured.
	Found uint64
}

func (u Unit) ideal() uint64 {
	if u.Configured != 0 {
		return u.Configured
	}
	return u.Found
}

// Member is one cgroup of a Group: a unit, or an ancestor of units.
type Member struct {
	Cgroup string
	// Ideal is the ideal weight, as it is written when no correction is needed.
	Ideal uint64
	// Units are the units at or below the cgroup.
	Units []string
}

// Group is a set of siblings: the scheduler compares a weight only with those
// of the same parent.
type Group struct {
	// Parent is their parent's path.
	Parent string
	// Members are sorted by path.
	Members []Member
	// Scale is the factor by which the ideal weights were multiplied because
	// weights are integers; usually 1.
	Scale uint64
}

// Branch returns the weight of a cgroup that is not a unit but holds several.
// configured means that it is from the configuration, and not the weight found.
type Branch func(cgroup string) (weight uint64, configured bool)

// Plan finds the levels at which the units compete. Units with one parent are a
// group. If units have different parents, their shares are decided between the
// ancestors that are siblings, so these are a group, too. The ideal of such an
// ancestor is its own configured weight, else the sum of its units' if one of them
// is configured, else its weight as found. notes are messages for the operator
// about the plan.
func Plan(units []Unit, branch Branch, r law.Range) (groups []Group, notes []string) {
	root := &node{path: "/"}
	for n := range units {
		root.insert(&units[n])
	}
	root.walk(func(n *node) {
		members := n.members()
		if len(members) == 0 {
			return
		}
		group := Group{Parent: n.path, Scale: 1}
		for _, child := range members {
			member := Member{Cgroup: child.path, Units: child.unitPaths()}
			if child.unit != nil && len(child.children) == 0 {
				member.Ideal = child.unit.ideal()
			} else {
				var why string
				member.Ideal, why = child.branchIdeal(branch)
				notes = append(notes, fmt.Sprintf("%s holds %s: %s; it governs whatever else is in %s too",
					child.path, strings.Join(member.Units, " "), why, child.path))
			}
			group.Members = append(group.Members, member)
		}
		notes = append(notes, group.scale(r)...)
		groups = append(groups, group)
	})
	return groups, notes
}

// node is a cgroup on the way to units.
type node struct {
	path     string
	unit     *Unit
	children map[string]*node
}

func (n *node) insert(unit *Unit) {
	for name := range strings.SplitSeq(strings.Trim(unit.Cgroup, "/"), "/") {
		if n.children == nil {
			n.children = map[string]*node{}
		}
		child := n.children[name]
		if child == nil {
			child = &node{path: path.Join(n.path, name)}
			n.children[name] = child
		}
		n = child
	}
	n.unit = unit
}

func (n *node) sorted() []*node {
	return slices.SortedFunc(maps.Values(n.children), func(a, b *node) int { return cmp.Compare(a.path, b.path) })
}

func (n *node) walk(visit func(*node)) {
	visit(n)
	for _, child := range n.sorted() {
		child.walk(visit)
	}
}

// members are the children that compete here for enforced shares: all if there are
// several, and the only one if it is itself a unit.
func (n *node) members() []*node {
	children := n.sorted()
	if len(children) == 1 && children[0].unit == nil {
		return nil
	}
	return children
}

func (n *node) unitPaths() []string {
	var paths []string
	n.walk(func(n *node) {
		if n.unit != nil {
			paths = append(paths, n.unit.Cgroup)
		}
	})
	return paths
}

// branchIdeal is the ideal weight of a cgroup with units below it.
func (n *node) branchIdeal(branch Branch) (weight uint64, why string) {
	if n.unit != nil {
		return n.unit.ideal(), fmt.Sprintf("its own weight, %d, governs all of them together", n.unit.ideal())
	}
	found, configured := branch(n.path)
	if configured && found > 0 {
		return found, fmt.Sprintf("its configured weight, %d, governs all of them together", found)
	}
	var sum uint64
	n.walk(func(n *node) {
		if n.unit != nil {
			sum += min(n.unit.ideal(), law.MaxWeight)
			configured = configured || n.unit.Configured != 0
		}
	})
	if configured || found == 0 {
		return sum, fmt.Sprintf("its weight becomes the sum of theirs, %d", sum)
	}
	return found, fmt.Sprintf("its weight as found, %d, governs all of them together", found)
}

// scale changes the ideals to weights that a weight file can hold.
func (g *Group) scale(r law.Range) (notes []string) {
	ideals := make([]uint64, len(g.Members))
	var greatest uint64
	for n, m := range g.Members {
		ideals[n] = m.Ideal
		greatest = max(greatest, m.Ideal)
	}
	if greatest > r.Max {
		for n := range g.Members {
			m := &g.Members[n]
			m.Ideal = max(r.Min, (m.Ideal*r.Max+greatest/2)/greatest)
		}
		return []string{fmt.Sprintf("the weights below %s are divided by %.3g, because a weight is at most %d",
			g.Parent, float64(greatest)/float64(r.Max), r.Max)}
	}
	if len(g.Members) < 2 {
		return nil
	}
	if g.Scale = law.Scale(ideals, r); g.Scale > 1 {
		for n := range g.Members {
			g.Members[n].Ideal *= g.Scale
		}
		return []string{fmt.Sprintf("the weights below %s are multiplied by %d while in control, because they are whole numbers and one step of so small ones is too coarse; cgroups there that are not controlled count for less meanwhile",
			g.Parent, g.Scale)}
	}
	return nil
}
