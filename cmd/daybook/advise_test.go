package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/advise"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/disktime"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/program"
)

// The command on a real file system: a container that syncs gets predictions for each
// remedy, and what the host has no place for is not recommended.
func TestAdviseForAContainerThatSyncs(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	at := containerThatSyncs(t, fs.Dir, "advise", appendAndSync)
	var out string
	var got adviseOutput
	// On a busy host there may be too few calls in a short interval.
	for _, interval := range []string{"3s", "9s", "27s", "1m"} {
		var err error
		if out, err = execute(t, "advise", "--interval", interval, "--device", fs.Disk.Name, "--container", at, "--json"); err != nil {
			t.Fatal(err)
		}
		got = adviseOutput{}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Waiters) > 0 && got.Waiters[0].Calls >= advise.MinCalls {
			break
		}
	}
	if len(got.Waiters) != 1 || got.Waiters[0].Cgroup != at || got.Waiters[0].Device != fs.Disk.Name {
		t.Fatalf("got %s", out)
	}
	one := got.Waiters[0]
	if one.Calls < advise.MinCalls {
		t.Skipf("only %d syncs in a minute: the host is too busy", one.Calls)
	}
	if len(one.Remedies) != len(advise.Kinds()) || one.Now.P99Seconds <= 0 || one.Now.SyncsPerSecond <= 0 {
		t.Fatalf("got %s", out)
	}
	for _, r := range one.Remedies {
		if r.Kind == advise.DeviceVolume && (r.Possible || !strings.Contains(r.Reason, "whole disk")) {
			t.Errorf("the file system has the whole disk, but %+v", r)
		}
		if r.Kind == one.Best && !r.Possible {
			t.Errorf("%s is the best, but not possible", r.Kind)
		}
	}
	var text string
	var err error
	for _, interval := range []string{"2s", "8s", "32s", "1m"} {
		if text, err = execute(t, "advise", "--interval", interval, "--device", fs.Disk.Name); err != nil || !strings.HasPrefix(text, "nobody waited") {
			break
		}
	}
	if err != nil || !strings.Contains(text, at+" on "+fs.Disk.Name+": ") {
		t.Errorf("%v: %s", err, text)
	}
}

func TestAdviseRefusesWrongFlags(t *testing.T) {
	for _, words := range [][]string{
		{"--interval", "1ms"}, {"--container", "[a"}, {"--limit", "-1"}, {"--device", "no-such-disk"}, {"extra"}, {"--volume-size", "x"},
	} {
		_, err := execute(t, append([]string{"advise"}, words...)...)
		var usage usageError
		if !errors.As(err, &usage) && os.Geteuid() == 0 {
			t.Errorf("%q: %v; want a usage error", words, err)
		}
	}
}

func TestAdviseWithoutRootSaysHowToRunIt(t *testing.T) {
	needs.Root(t) // to become somebody else
	command := exec.Command("/proc/self/exe", "advise", "--interval", "1s")
	command.Env = append(os.Environ(), commandVariable+"=1")
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(program.Nobody.UID), Gid: uint32(program.Nobody.GID)}}
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitUnsupported || !strings.Contains(string(out), "want root, to load BPF programs; try: sudo daybook advise") {
		t.Errorf("%v: %s", err, out)
	}
}

// A container is listed once for each file system, by its whole wait.
func TestContainersThatSyncAreListedOnce(t *testing.T) {
	found := waitingContainers([]account.Waiter{
		{Cgroup: "/a", Device: "sda1", Operation: "fsync", WaitSeconds: 2},
		{Cgroup: "/b", Device: "sda1", Operation: "fsync", WaitSeconds: 3},
		{Cgroup: "/a", Device: "sda1", Operation: "msync", WaitSeconds: 2},
		{Cgroup: "/c", Device: "sda1", Operation: "handle", WaitSeconds: 9},
	}, "")
	if len(found) != 2 || found[0].Cgroup != "/a" || found[0].WaitSeconds != 4 || found[1].Cgroup != "/b" {
		t.Errorf("%+v", found)
	}
}

func TestAdviceAsText(t *testing.T) {
	if got := adviceLines(adviseOutput{IntervalSeconds: 30}, "db*"); len(got) != 1 || got[0] != "no container that matches db* waited for a sync in the last 30 s" {
		t.Errorf("%q", got)
	}
	if got := adviceLines(adviseOutput{IntervalSeconds: 30}, ""); len(got) != 1 || got[0] != "nobody waited for a sync in the last 30 s" {
		t.Errorf("%q", got)
	}
	r := advise.Range{Low: 1, Median: 2, High: 3}
	lines := adviceLines(adviseOutput{Waiters: []advisedOne{{Name: "db1", Device: "sda1", Advice: advise.Advice{
		Now: advise.Figures{SyncsPerSecond: 10, P50Seconds: 0.01, P99Seconds: 0.02}, Verdict: "What helps.",
		Remedies: []advise.Remedy{{Kind: advise.DeviceVolume, Gain: r, P50Seconds: r, P99Seconds: r, Reason: "no space"}},
	}}}}, "")
	text := strings.Join(lines, "\n")
	for _, want := range []string{"db1 on sda1: 10 syncs/s, p50 10 ms, p99 20 ms", "What helps.", "a volume on a device", "2 (1 to 3)", "not here: no space"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

func TestNumbersOfAdviceHaveNoExponent(t *testing.T) {
	r := advise.Range{Low: 110, Median: 124.6, High: 1300}
	lines := adviceLines(adviseOutput{Waiters: []advisedOne{{Name: "db1", Device: "sda1", Advice: advise.Advice{
		Now:      advise.Figures{SyncsPerSecond: 12345, P50Seconds: 0.0009996, P99Seconds: 0.9996},
		Remedies: []advise.Remedy{{Kind: advise.DeviceVolume, Possible: true, Gain: r, P50Seconds: r, P99Seconds: r}},
	}}}}, "")
	text := strings.Join(lines, "\n")
	for _, want := range []string{"12300 syncs/s, p50 1 ms, p99 1 s", "125 (110 to 1300)", "125 s (110 s to 1300 s)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if got := adviceLines(adviseOutput{IntervalSeconds: 3600}, ""); got[0] != "nobody waited for a sync in the last 3600 s" {
		t.Errorf("%q", got)
	}
}

func TestTheColumnsOfAdviceAreAligned(t *testing.T) {
	short, long := advise.Range{Low: 1, Median: 1, High: 1}, advise.Range{Low: 0.000311, Median: 0.000377, High: 0.000461}
	lines := remedyLines([]advise.Remedy{
		{Kind: advise.Weights, Gain: short, P50Seconds: long, P99Seconds: long},
		{Kind: advise.Limit, Gain: long, P50Seconds: short, P99Seconds: short, Reason: "it waits for no other container"},
	})
	at := strings.Index(lines[0], "p99")
	for _, line := range []string{lines[1], lines[3]} {
		if len(line) <= at || line[at-1] != ' ' || line[at] == ' ' {
			t.Errorf("p99 does not begin at column %d:\n%s", at, strings.Join(lines, "\n"))
		}
	}
}

// steps is a source, and times of requests, that note in which order they are read.
type steps struct{ done []string }

func (s *steps) Next(context.Context) (account.Sample, error) {
	s.done = append(s.done, "waits")
	return account.Sample{IntervalSeconds: 30}, nil
}

func (s *steps) Close() error { return nil }

func (s *steps) ReadAll() (disktime.Reading, error) {
	s.done = append(s.done, "requests")
	sums := disktime.Sums{Requests: 100 * uint64(len(s.done))}
	return disktime.Reading{Sums: map[blockdev.Dev]map[disktime.Key]disktime.Sums{{Major: 8}: {{Class: disktime.Data}: sums}}}, nil
}

// The programs that time requests are attached before the waits are measured.
func TestRequestsAreThoseOfTheIntervalOfTheWaits(t *testing.T) {
	var s steps
	sample, reading, err := measureInterval(t.Context(), &s, &s)
	if err != nil || sample.IntervalSeconds != 30 {
		t.Fatalf("%+v, %v", sample, err)
	}
	if n := reading.Sums[blockdev.Dev{Major: 8}][disktime.Key{Class: disktime.Data}].Requests; n != 200 {
		t.Errorf("%d requests; want the 200 after the first reading", n)
	}
	if want := []string{"requests", "waits", "requests"}; !slices.Equal(s.done, want) {
		t.Errorf("read %q, want %q", s.done, want)
	}
}

func TestAnEmptyResultNamesThoseWhoWaitedAllTheSame(t *testing.T) {
	sync := account.Waiter{Cgroup: "/docker/1", Name: "db1", Device: "sda1", Operation: "fsync", WaitSeconds: 2}
	unit := account.Waiter{Cgroup: `/machine.slice/machine-qemu\x2d1\x2ddb.scope`, Name: "qemu-1-db", Device: "sda1", Operation: "fsync", WaitSeconds: 1}
	start := account.Waiter{Cgroup: "/web", Name: "web", Device: "sda1", Operation: "handle", WaitSeconds: 3}
	for _, c := range []struct {
		waiters           []account.Waiter
		container         string
		ofBlame, ofAdvise string
	}{
		{nil, "", "", ""},
		{[]account.Waiter{sync}, "", "", ""},
		{[]account.Waiter{unit, sync}, unit.Cgroup, "", ""},
		{[]account.Waiter{sync, start}, "db", "no container that waited matches --container db; these waited: db1, web", "no container that waited matches --container db; these waited: db1"},
		{[]account.Waiter{start}, "", "", `calls that change metadata waited 3 s before they could start; "daybook blame" shows for what`},
		{[]account.Waiter{start}, "web", "", `calls that change metadata waited 3 s before they could start; "daybook blame" shows for what`},
	} {
		found := 0
		for _, w := range c.waiters {
			if isContainer(w, c.container) {
				found++
			}
		}
		if got := whoElseWaited(c.waiters, found, c.container); got != c.ofBlame {
			t.Errorf("blame: %q", got)
		}
		if len(waitingContainers(c.waiters, c.container)) > 0 {
			continue // there is advice
		}
		if got := whyNoAdvice(c.waiters, c.container); got != c.ofAdvise {
			t.Errorf("advise: %q", got)
		}
	}
}
