package control

import (
	"fmt"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/control/law"
)

func foundBranch(weights map[string]uint64) Branch {
	return func(cgroup string) (uint64, bool) { return weights[cgroup], false }
}

func describe(groups []Group) string {
	var b strings.Builder
	for _, g := range groups {
		b.WriteString(g.Parent + ":")
		for _, m := range g.Members {
			b.WriteString(" " + m.Cgroup + "=" + fmt.Sprint(m.Ideal))
		}
		b.WriteString("; ")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func TestPlanGroupsBySiblings(t *testing.T) {
	for _, c := range []struct {
		name   string
		units  []Unit
		branch Branch
		want   string
		note   string
	}{
		{"one parent", []Unit{{Cgroup: "/cb", Configured: 300}, {Cgroup: "/ca", Configured: 700}}, nil,
			"/: /ca=700 /cb=300", ""},
		{"found weights", []Unit{{Cgroup: "/ca", Found: 200}, {Cgroup: "/cb", Configured: 300, Found: 100}}, nil,
			"/: /ca=200 /cb=300", ""},
		{"unlike parents, configured: the branch is the sum of its units",
			[]Unit{{Cgroup: "/docker/a", Configured: 100}, {Cgroup: "/docker/b", Configured: 200}, {Cgroup: "/lxc.payload.x", Configured: 300}},
			foundBranch(map[string]uint64{"/docker": 100}),
			"/: /docker=300 /lxc.payload.x=300; /docker: /docker/a=100 /docker/b=200", "/docker holds /docker/a /docker/b"},
		{"unlike parents, found: the hierarchy as it is",
			[]Unit{{Cgroup: "/docker/a", Found: 100}, {Cgroup: "/docker/b", Found: 100}, {Cgroup: "/x", Found: 100}},
			foundBranch(map[string]uint64{"/docker": 150}),
			"/: /docker=150 /x=100; /docker: /docker/a=100 /docker/b=100", "as found, 150"},
		{"the branch is configured itself",
			[]Unit{{Cgroup: "/docker/a", Configured: 100}, {Cgroup: "/x", Configured: 300}},
			func(string) (uint64, bool) { return 250, true },
			"/: /docker=250 /x=300; /docker: /docker/a=100", "configured weight, 250"},
		{"deep and alone: only where it meets others",
			[]Unit{{Cgroup: "/kubepods/burstable/pod1/c", Configured: 100}, {Cgroup: "/kubepods/besteffort/pod2/d", Configured: 50}},
			foundBranch(map[string]uint64{}),
			"/kubepods: /kubepods/besteffort=50 /kubepods/burstable=100; /kubepods/besteffort/pod2: /kubepods/besteffort/pod2/d=50; /kubepods/burstable/pod1: /kubepods/burstable/pod1/c=100", "/kubepods/burstable holds"},
		{"a unit with a unit in it", []Unit{{Cgroup: "/a", Configured: 300}, {Cgroup: "/a/b", Configured: 100}, {Cgroup: "/c", Configured: 200}}, nil,
			"/: /a=300 /c=200; /a: /a/b=100", "/a holds /a /a/b"},
		{"sums beyond the file are divided", []Unit{{Cgroup: "/d/a", Configured: 1000}, {Cgroup: "/d/b", Configured: 1000}, {Cgroup: "/x", Configured: 1000}},
			foundBranch(nil), "/: /d=1000 /x=500; /d: /d/a=1000 /d/b=1000", "divided by 2"},
		{"small ones are multiplied", []Unit{{Cgroup: "/a", Configured: 6}, {Cgroup: "/b", Configured: 4}}, nil,
			"/: /a=120 /b=80", "multiplied by 20"},
		{"one alone is at its ideal", []Unit{{Cgroup: "/a", Configured: 6}}, nil, "/: /a=6", ""},
		{"nobody", nil, nil, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			groups, notes := Plan(c.units, c.branch, law.BFQRange)
			if got := describe(groups); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if all := strings.Join(notes, "\n"); !strings.Contains(all, c.note) || c.note == "" && all != "" {
				t.Errorf("notes %q, want %q", all, c.note)
			}
		})
	}
}
