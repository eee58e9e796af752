package top

import (
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

func waitsSample() account.Sample {
	return account.Sample{
		IntervalSeconds: 60,
		Waiters: []account.Waiter{
			{Cgroup: "/db1", Name: "db1", Device: "sda1", Operation: "fsync", Calls: 1000, WaitSeconds: 41, P50Seconds: 0.0123, P99Seconds: 0.312,
				Culprits: []account.Culprit{
					{Cgroup: "/web", Name: "web-7", Seconds: 31.98, Cause: "ordered_data"},
					{Cgroup: "/db1", Name: "db1", Seconds: 4.92, Cause: "log"},
					{Seconds: 3.69, Cause: "flush"},
					{Cgroup: "/", Name: "/", Seconds: 0.22, Cause: "lock"},
					{Seconds: 0.1, Cause: "rest"}, {Seconds: 0.09, Cause: "checkpoint"},
				}},
			{Cgroup: "/web", Name: "web\x1b[2J", Device: "sda1", Operation: "handle", Calls: 2, WaitSeconds: 0.5, P50Seconds: 0.2, P99Seconds: 0.3,
				Culprits: []account.Culprit{{Seconds: 0.5, Cause: "checkpoint"}}},
		},
		WaitsLost: 7, WaitEventsMissed: 3,
	}
}

func TestWaitersAreShownWithTheirCauses(t *testing.T) {
	want := []string{
		"db1 waited 41 s of the last 60 s in fsync on sda1: 1000 calls, p50 12.3 ms, p99 312 ms",
		"   78.0%  web-7's ordered data, written before the commit",
		"   12.0%  its own metadata, written to the log",
		"    9.0%  flush of the disk's cache, with the commit record",
		"    0.5%  the root cgroup's open handles, for which the commit waited",
		"web\x1b[2J waited 500 ms of the last 60 s in the start of other calls on sda1: 2 calls, p50 200 ms, p99 300 ms",
		"  100.0%  unknown metadata in a full log: checkpoint",
		"7 waits are missing: there was no space for them in the kernel",
		"for 3 events the kernel ran no program: waits can be missing, or be in another phase",
	}
	if got := WaitLines(waitsSample(), "", 0); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestOnlyTheWorstWaitersAreShown(t *testing.T) {
	got := WaitLines(waitsSample(), "", 1)
	if !slices.Contains(got, "1 more waited less") || slices.ContainsFunc(got, func(l string) bool { return strings.HasPrefix(l, "web") }) {
		t.Errorf("got %q", got)
	}
}

func TestManyCausesEndInOneLine(t *testing.T) {
	sample := waitsSample()
	w := &sample.Waiters[0]
	w.Culprits = nil
	for range 41 {
		w.Culprits = append(w.Culprits, account.Culprit{Cgroup: "/x", Name: "x", Seconds: 1, Cause: "log"})
	}
	got := WaitLines(sample, "", 1)
	if want := "   87.8%  smaller causes"; got[6] != want {
		t.Errorf("line 7 is %q; want %q", got[6], want)
	}
}

// The time of a call can come an interval after it, with the record of its commit.
func TestCallsWithoutATimeHaveNoCauses(t *testing.T) {
	sample := account.Sample{IntervalSeconds: 10, Waiters: []account.Waiter{
		{Cgroup: "/db1", Name: "db1", Device: "sda1", Operation: "fsync", Calls: 1, P50Seconds: 0.5, P99Seconds: 0.5},
	}}
	want := []string{"db1 waited 0 ms of the last 10 s in fsync on sda1: 1 calls, p50 500 ms, p99 500 ms"}
	if got := WaitLines(sample, "", 0); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestWaitsAreSafeForATerminal(t *testing.T) {
	var out strings.Builder
	if err := WriteWaits(&out, waitsSample(), "", 0, 40); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "\x1b") || len(line) > 41 {
			t.Errorf("line %q", line)
		}
	}
}

func TestNobodyWaited(t *testing.T) {
	if got := WaitLines(account.Sample{IntervalSeconds: 10}, "", 5); !slices.Equal(got, []string{"nobody waited for a journal in the last 10 s"}) {
		t.Errorf("got %q", got)
	}
	want := "no container that matches db* waited for a journal in the last 10 s"
	if got := WaitLines(account.Sample{IntervalSeconds: 10}, "db*", 5); !slices.Equal(got, []string{want}) {
		t.Errorf("%q", got)
	}
}

func TestTheKeyBShowsTheWaits(t *testing.T) {
	s := testScreen(100, 24)
	sample := *s.Sample
	sample.Waiters, sample.WaitsLost = waitsSample().Waiters, 7
	s.Sample = &sample
	press := func() string {
		next, _ := model{screen: s}.key("b")
		s = next.(model).screen
		return s.Render()
	}
	if text := press(); !strings.Contains(text, "db1 waited 41 s") || strings.Contains(text, "SHARE") || strings.Contains(text, "\x1b[2J") {
		t.Errorf("got\n%s", text)
	}
	if got := len(lines(s)); got != 24 {
		t.Errorf("%d lines; want 24", got)
	}
	s.Height = 5
	if got := len(lines(s)); got != 5 {
		t.Errorf("%d lines on a small terminal; want 5", got)
	}
	s.Height = 24
	if text := press(); strings.Contains(text, "db1 waited") || !strings.Contains(text, "SHARE") {
		t.Errorf("got\n%s", text)
	}
	s.Sample.Waiters = nil
	if text := press(); !strings.Contains(text, "start with --waits") {
		t.Errorf("got\n%s", text)
	}
	s.Sample.Waiters = []account.Waiter{}
	if text := s.Render(); !strings.Contains(text, "nobody waited") && !strings.Contains(text, "7 waits are missing") {
		t.Errorf("got\n%s", text)
	}
}
