package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/account"
)

// Column is one column of the table, and a sort key.
type Column struct {
	// Key is its name on the command line and in the status line.
	Key string
	// title is its heading; the help screen explains it by meaning.
	title, meaning string
	// width is in cells; the last column takes the rest.
	width int
	// keep is the order in which columns get space on a narrow screen, 0 first.
	keep int
	cell func(c account.Container, seconds float64) string
	less func(a, b account.Container) int
}

// minNameWidth is the minimum width in cells of the container column; other
// columns are dropped before it gets narrower.
const minNameWidth = 16

func number(value func(account.Container) uint64) func(a, b account.Container) int {
	return func(a, b account.Container) int { return cmp.Compare(value(a), value(b)) }
}

// flow is a column of bytes per second.
func flow(key, title, meaning string, keep int, value func(account.Container) uint64) Column {
	return Column{
		Key: key, title: title, meaning: meaning, width: max(len(title), 5), keep: keep,
		cell: func(c account.Container, seconds float64) string { return rate(float64(value(c)), seconds) },
		less: number(value),
	}
}

// Columns are all columns in the order of the screen.
var Columns = []Column{
	{
		Key: "share", title: "SHARE", meaning: "its part of the I/O of all containers on this disk", width: 6, keep: 1,
		cell: func(c account.Container, _ float64) string { return percent(c.Share) },
		less: number(account.Container.Bytes),
	},
	{
		Key: "target", title: "TARGET", meaning: "share that its weight entitles it to", width: 6, keep: 2,
		cell: func(c account.Container, _ float64) string {
			if c.TargetShare == 0 {
				return "-"
			}
			return percent(c.TargetShare)
		},
		less: func(a, b account.Container) int { return cmp.Compare(a.TargetShare, b.TargetShare) },
	},
	flow("read", "READ/s", "bytes read, as charged by the kernel", 4,
		func(c account.Container) uint64 { return c.ChargedReadBytes }),
	flow("write", "WRITE/s", "bytes written, as charged by the kernel, less returned bytes", 5,
		func(c account.Container) uint64 { return c.ChargedWriteBytes }),
	flow("journal", "JRNL/s", "its part of the file-system journal, also in memory", 3,
		func(c account.Container) uint64 { return c.JournalBytes + c.MemoryJournalBytes }),
	flow("metadata", "META/s", "its part of metadata written in place (checkpoints)", 6,
		func(c account.Container) uint64 { return c.MetadataBytes }),
	flow("uncharged", "UNCH/s", "its file data that was charged to the root cgroup", 7,
		func(c account.Container) uint64 { return c.UnchargedBytes }),
	flow("returned", "RETN/s", "charged to it, but caused by others and shown in their lines", 10,
		func(c account.Container) uint64 { return c.ReturnedBytes }),
	{
		Key: "forced", title: "FORCED", meaning: "commits in the interval that its syncs forced", width: 6, keep: 9,
		cell: func(c account.Container, _ float64) string { return count(c.ForcedCommits) },
		less: number(func(c account.Container) uint64 { return c.ForcedCommits }),
	},
	{
		Key: "weight", title: "WEIGHT", meaning: "I/O weight now in force; under control, the corrected one", width: 6, keep: 8,
		cell: func(c account.Container, _ float64) string {
			if c.Weight == 0 {
				return "-"
			}
			return count(c.Weight)
		},
		less: number(func(c account.Container) uint64 { return c.Weight }),
	},
	{
		Key: "runtime", title: "RUNTIME", meaning: "container runtime", width: 10, keep: 11,
		cell: func(c account.Container, _ float64) string {
			if c.Runtime == "" {
				return "-"
			}
			return Safe(c.Runtime)
		},
		less: func(a, b account.Container) int { return strings.Compare(b.Runtime, a.Runtime) },
	},
	{
		Key: "name", title: "CONTAINER", meaning: "its name, or else its cgroup", width: minNameWidth, keep: 0,
		cell: func(c account.Container, _ float64) string { return displayName(c) },
		// Descending is the default order; names start with A.
		less: func(a, b account.Container) int { return strings.Compare(b.Name, a.Name) },
	},
}

func displayName(c account.Container) string {
	switch {
	case c.Cgroup == account.RootCgroup:
		return "(root)"
	case c.Name == "":
		return Safe(c.Cgroup)
	default:
		return Safe(c.Name)
	}
}

// columnByKey returns the index of a column, -1 if there is none.
func columnByKey(key string) int {
	return slices.IndexFunc(Columns, func(c Column) bool { return c.Key == key })
}

// fit chooses the columns that fit in width cells with one blank between, in
// their keep order. 0 means no bound.
func fit(width int) []Column {
	if width <= 0 {
		return Columns
	}
	byKeep := slices.Clone(Columns)
	slices.SortFunc(byKeep, func(a, b Column) int { return cmp.Compare(a.keep, b.keep) })
	kept := map[string]bool{}
	used := -1
	for _, c := range byKeep {
		if used+1+c.width > width && len(kept) > 0 {
			break
		}
		used += 1 + c.width
		kept[c.Key] = true
	}
	return slices.DeleteFunc(slices.Clone(Columns), func(c Column) bool { return !kept[c.Key] })
}

// sorted returns the containers in the order of a column, greatest first unless
// reverse. Equal ones are ordered by cgroup, so that rows do not jump.
func sorted(containers []account.Container, column Column, reverse bool) []account.Container {
	result := slices.Clone(containers)
	slices.SortStableFunc(result, func(a, b account.Container) int {
		order := column.less(b, a)
		if reverse {
			order = -order
		}
		return cmp.Or(order, strings.Compare(a.Cgroup, b.Cgroup))
	})
	return result
}
