package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

func TestNothingIsWrittenThatIsNotInTheStateFirst(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.limits["/cb"] = 50e6
	f.tunables["low_latency"], f.tunables["timeout_sync"] = "1", "125"
	options := fakeOptions(t, f, "tunables: {low_latency: 0, timeout_sync: 40}\n"+twoEqual[:len(twoEqual)-1]+", {match: /late, weight: 100}]",
		journalling,
		func() account.Sample { f.create("/late"); return journalling() },
		func() account.Sample { return sampleOf(did("/ca", 1e8, 0), did("/late", 1e8, 1e6)) },
		func() account.Sample {
			f.mu.Lock()
			f.limits["/ca"] = 80e6 // someone limits it meanwhile
			f.mu.Unlock()
			return sampleOf(did("/ca", 1e8, 1e8))
		})
	steps := 0
	f.before = func(what string) error {
		if strings.Contains(what, "restore") {
			return nil
		}
		steps++
		state, err := LoadState(options.Config.StateDir, "loop0")
		if err != nil {
			t.Errorf("%s is written with the state %v", what, err)
			return nil
		}
		cgroup, value, _ := strings.Cut(what, " ")
		if original, tunable := map[string]string{"low_latency": "1", "timeout_sync": "125"}[cgroup]; tunable {
			if state.Tunables[cgroup] != original {
				t.Errorf("%s: not in the state", what)
			}
			return nil
		}
		at := slices.IndexFunc(state.Cgroups, func(c CgroupState) bool { return c.Cgroup == cgroup })
		if at < 0 || state.Cgroups[at].Weight != (Setting{Default: 100}) {
			t.Errorf("%s: the state says %+v", what, state.Cgroups)
		} else if strings.HasPrefix(value, "limit") && state.Cgroups[at].WriteBytesPerSecond == 0 {
			t.Errorf("%s: the limit is not in the state", what)
		}
		return nil
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if steps < 6 {
		t.Errorf("only %d writes: %v", steps, f.writes())
	}
	if f.limits["/cb"] != 50e6 || f.tunables["low_latency"] != "1" || f.tunables["timeout_sync"] != "125" {
		t.Errorf("in the end: limits %v, tunables %v", f.limits, f.tunables)
	}
}

// The process dies at its n-th write, for every n; then a restore, or a new start,
// must restore everything.
func TestDyingAtAnyWriteLeavesAStateThatRestoresAll(t *testing.T) {
	dead := errors.New("dead")
	for name, made := range map[string]func() (*fakeHost, Options){
		"weights": func() (*fakeHost, Options) {
			f := newFakeHost("/ca", "/cb", "/d/x", "/d/y")
			f.weights["/cb"] = Setting{Default: 100, Device: 77}
			f.limits["/cb"] = 50e6
			f.tunables["low_latency"] = "1"
			return f, fakeOptions(t, f, "tunables: {low_latency: 0, timeout_sync: 40}\ncontainers: [{match: '/c?', weight: 500}, {match: '/d/*', weight: 5}]",
				repeat(4, func() account.Sample {
					return sampleOf(did("/ca", 1e8, 0), did("/cb", 7e7, 3e7), did("/d/x", 3e7, 1e7), did("/d/y", 1e7, 0))
				})...)
		},
		"limits": func() (*fakeHost, Options) {
			f := newFakeHost("/ca", "/cb")
			f.reads = map[string]uint64{"/ca": 0, "/cb": 300e6}
			f.limits = map[string]uint64{"/ca": 200e6, "/cb": 0}
			return f, fakeOptions(t, f, "actuator: limits\n"+twoEqual, deepReaders(f, 10, func(int) bool { return false })...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				f, options := made()
				settings := func() string { return fmt.Sprint(f.weights, f.reads, f.limits, f.tunables) }
				before := settings()
				writes := 0
				f.before = func(string) error {
					if writes++; writes >= n {
						return dead // a dead process writes nothing more
					}
					return nil
				}
				c, err := start(options, options.Disks[0])
				if err != nil {
					t.Fatal(err)
				}
				if err := c.begin(); err == nil || writes < n {
					r := runner{options: options, config: options.Config, log: discard, live: []*Controller{c}}
					_ = r.loop(context.Background()) // its end restores, until it is dead
				}
				c.lock.Release()
				alive := writes < n
				f.before = nil
				restore := func() (bool, error) {
					_, ok, err := Restore(options.Config.StateDir, "", "loop0", "", func(*State) (Host, error) { return f.host(), nil }, discard)
					return ok, err
				}
				if ok, err := restore(); err != nil || alive && ok {
					t.Fatalf("dead at write %d: %v, %v", n, ok, err)
				}
				if after := settings(); after != before {
					t.Fatalf("dead at write %d: %s, before %s", n, after, before)
				}
				if ok, err := restore(); ok || err != nil {
					t.Fatalf("a second restore: %v, %v", ok, err)
				}
				if !alive {
					continue
				}
				if n < 6 {
					t.Errorf("only %d writes", n-1)
				}
				t.Logf("died at each of %d writes", n-1)
				return
			}
		})
	}
}

func TestAFullStateDirectoryStopsItBeforeTheFirstWrite(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	options := fakeOptions(t, f, twoEqual, journalling)
	// A directory in the state file's way acts as any failure to write.
	if err := os.MkdirAll(filepath.Join(options.Config.StateDir, "control-loop0.json.new"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := Run(context.Background(), options)
	if err == nil || !strings.Contains(err.Error(), "cannot keep the original settings") {
		t.Errorf("error %v", err)
	}
	if len(f.writes()) != 0 {
		t.Errorf("wrote %v", f.writes())
	}
}

func TestANewCgroupIsLeftAloneWhileTheStateCannotBeSaved(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	var blocker string
	options := fakeOptions(t, f, twoEqual[:len(twoEqual)-1]+", {match: /late, weight: 100}]",
		journalling,
		func() account.Sample {
			if err := os.Mkdir(blocker, 0o755); err != nil {
				t.Error(err)
			}
			f.create("/late")
			return journalling()
		},
		func() account.Sample {
			if got := f.weight("/late"); got != (Setting{Default: 100}) {
				t.Errorf("/late was set to %+v", got)
			}
			if err := os.Remove(blocker); err != nil {
				t.Error(err)
			}
			return journalling()
		},
		func() account.Sample {
			if got := f.weight("/late"); got.Device != 100 && got.Default != 100 {
				t.Errorf("/late is at %+v", got)
			}
			return journalling()
		})
	blocker = filepath.Join(options.Config.StateDir, "control-loop0.json.new")
	var decisions []Decision
	options.OnInterval = func(d Decision) { decisions = append(decisions, d) }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if len(decisions[1].Weights) != 2 || len(decisions[2].Weights) != 3 {
		t.Errorf("steered %d then %d cgroups, want 2 then 3", len(decisions[1].Weights), len(decisions[2].Weights))
	}
}

// While the state cannot be saved, a new cgroup is not controlled. The log says so once, and
// not at each step.
func TestAStateThatCannotBeSavedIsLoggedOnce(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	var log bytes.Buffer
	steps := []func() account.Sample{journalling, func() account.Sample { f.create("/late"); return journalling() }}
	steps = append(steps, repeat(20, journalling)...)
	options := fakeOptions(t, f, twoEqual[:len(twoEqual)-1]+", {match: /late, weight: 300}]", steps...)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	move := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	away := filepath.Join(t.TempDir(), "away")
	n := 0
	options.OnInterval = func(Decision) {
		switch n++; n {
		case 1:
			move(options.Config.StateDir, away)
		case 15:
			move(away, options.Config.StateDir)
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "cannot look for new cgroups"); n != 1 {
		t.Errorf("logged %d times; want once:\n%s", n, log.String())
	}
	if !slices.ContainsFunc(f.writes(), func(w string) bool { return strings.HasPrefix(w, "/late weight") }) {
		t.Errorf("/late is not controlled after the state could be saved again: %v", f.writes())
	}
}

// LoadState would refuse it, and nothing in it would be restored.
func TestAStateThatWouldBeTooLargeToReadIsNotSaved(t *testing.T) {
	dir := t.TempDir()
	state := sampleState()
	if err := state.Save(dir); err != nil {
		t.Fatal(err)
	}
	before := len(state.Cgroups)
	long := strings.Repeat("/"+strings.Repeat("x", 200), 20)
	for n := range maxStateBytes/len(long) + 1 {
		state.Cgroups = append(state.Cgroups, CgroupState{Cgroup: fmt.Sprintf("/%d%s", n, long), ID: uint64(n), Weight: Setting{Default: 100}})
	}
	if err := state.Save(dir); err == nil || !strings.Contains(err.Error(), "fewer cgroups") {
		t.Errorf("saving a state of more than %d bytes: %v", maxStateBytes, err)
	}
	if kept, err := LoadState(dir, "loop0"); err != nil || len(kept.Cgroups) != before {
		t.Errorf("the state of before is %v, %v", kept != nil, err)
	}
}

func TestTheEndReportsAllErrorsThoughNothingIsLeftToRestore(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	c := began(t, fakeOptions(t, f, twoEqual))
	if err := c.written.close(); err != nil {
		t.Fatal(err)
	}
	// A directory that is not empty cannot be removed as a file.
	path := StatePath(c.config.StateDir, "loop0")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := c.stop()
	if !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), "cannot remove the state") {
		t.Errorf("the error is %v; want those of the record of weights and of the state", err)
	}
	if f.weight("/ca") != (Setting{Default: 100}) {
		t.Errorf("%+v", f.weights)
	}
}
