package placement

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/systemd"
	"github.com/daybook-project/daybook/volume/internal/cause"
)

func TestAChoiceIsCompletedOrRefused(t *testing.T) {
	for _, c := range []struct {
		mode        Mode
		cgroup      string
		wantMode    Mode
		wantCgroup  string
		wantRefused bool
	}{
		{"", "", Parent, DefaultParent("db"), false},
		{"", "my-db.slice", Parent, "/my.slice/my-db.slice", false},
		{Container, "my-db.slice", Container, "my-db.slice", true},
		{Parent, "/user", Parent, "/user", false},
		{Container, "/docker/1", Container, "/docker/1", false},
		{None, "", None, "", false},
		{Container, "", Container, "", true},
		{None, "/x", None, "/x", true},
		{Parent, "/", Parent, "/", true},
		{Parent, "x", Parent, "x", true},
		{Parent, "/x/../y", Parent, "/x/../y", true},
		{"beside", "", "beside", "", true},
	} {
		mode, cgroup, err := Complete(c.mode, c.cgroup, "db")
		if mode != c.wantMode || cgroup != c.wantCgroup || errors.Is(err, cause.ErrInvalid) != c.wantRefused || !c.wantRefused && err != nil {
			t.Errorf("%q in %q: %q in %q, %v", c.mode, c.cgroup, mode, cgroup, err)
		}
	}
}

func TestAJournalsCgroupIsBelowItsParentsAndOfOneFileSystem(t *testing.T) {
	if a, b := JournalCgroup("/user/db", "db"), JournalCgroup("/user", "db"); a != "/user/db/journal" || b != "/user/journal-db" {
		t.Errorf("%s, %s", a, b)
	}
	if way := Ancestry("/a/b/c"); !slices.Equal(way, []string{"/a", "/a/b", "/a/b/c"}) {
		t.Errorf("%q", way)
	}
}

func TestAJournalOfASliceHasASliceInIt(t *testing.T) {
	for _, test := range []struct{ parent, name, want string }{
		{"/daybook.slice/daybook-db1.slice", "db1", "/daybook.slice/daybook-db1.slice/daybook-db1-journal.slice"},
		{`/daybook.slice/daybook-a\x2db.slice`, "a-b", `/daybook.slice/daybook-a\x2db.slice/daybook-a\x2db-journal.slice`},
		{"/my.slice", "db1", `/my.slice/my-journal\x2ddb1.slice`},
		{"/my.slice", "a-b", `/my.slice/my-journal\x2da\x2db.slice`},
	} {
		s := Placed{Placement: Parent, Cgroup: test.parent, Slice: true}
		s.Journal = s.journal(test.name)
		if s.Journal != test.want || systemd.SliceOf(s.Journal) == "" {
			t.Errorf("%s in %s: %s, want %s", test.name, test.parent, s.Journal, test.want)
		}
		if err := s.Check(test.name); err != nil {
			t.Error(err)
		}
		if err := s.Check("other"); err == nil {
			t.Errorf("%s is taken for the journal of another", s.Journal)
		}
	}
	for what, s := range map[string]Placed{
		"no slice":        {Placement: Parent, Cgroup: "/user", Journal: "/user/journal-db", Slice: true},
		"a container's":   {Placement: Container, Cgroup: "/my.slice", Journal: "/my.slice", Slice: true},
		"of no placement": {Placement: None, Slice: true},
	} {
		if err := s.Check("db"); err == nil {
			t.Errorf("a slice is taken: %s", what)
		}
	}
}

// Release removes what a file says. So a file must not lead it astray.
func TestASliceWithALongerNameThanSystemdAllowsIsRefused(t *testing.T) {
	for dashes, fits := range map[int]bool{0: true, 35: true, 36: false, 64: false} {
		name := strings.Repeat("-", dashes) + strings.Repeat("a", 128-dashes)
		s := Placed{Placement: Parent, Cgroup: sliceByName("daybook-" + systemd.EscapeSlice(name) + ".slice"), Slice: true}
		s.Journal = s.journal(name)
		if err := s.checkSliceName(); (err == nil) != fits || err != nil && !errors.Is(err, cause.ErrInvalid) {
			t.Errorf("%d dashes, %d bytes: %v", dashes, len(path.Base(s.Journal)), err)
		}
		s.Slice = false
		if err := s.checkSliceName(); err != nil {
			t.Errorf("cgroups may be longer: %v", err)
		}
	}
}

func TestWhatLeadsAReleaseAstrayIsRefused(t *testing.T) {
	sound := func() Placed {
		return Placed{
			Placement: Parent, Cgroup: "/user/db1", Journal: "/user/db1/journal-db", MadeCgroups: []string{"/user/db1/journal-db"}, EnabledIO: []string{"/user/db1"},
			WeightBefore: &WeightBefore{File: "io.bfq.weight", Disk: "7:0", Scheduler: "bfq", Default: 100},
		}
	}
	if err := sound().Check("db"); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Placed){
		"another's journal":      func(p *Placed) { p.Journal = "/user/db1/journal-other" },
		"the root":               func(p *Placed) { p.Cgroup = "/" },
		"another's cgroup":       func(p *Placed) { p.MadeCgroups = []string{"/docker"} },
		"the root as made":       func(p *Placed) { p.MadeCgroups = []string{"/"} },
		"the wrong order":        func(p *Placed) { p.MadeCgroups = []string{"/user/db1/journal-db", "/user"} },
		"another's controller":   func(p *Placed) { p.EnabledIO = []string{"/docker"} },
		"a weight of its own":    func(p *Placed) { p.MadeCgroups = []string{"/user/db1", "/user/db1/journal-db"} },
		"cgroups without a mode": func(p *Placed) { p.Placement = None },
		"an unknown mode":        func(p *Placed) { p.Placement = "x" },
	} {
		placed := sound()
		change(&placed)
		if err := placed.Check("db"); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
