package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
)

const twoEqual = "containers: [{match: /ca, weight: 500}, {match: /cb, weight: 500}]"

func journalling() account.Sample { return sampleOf(did("/ca", 100e6, 0), did("/cb", 70e6, 30e6)) }

func TestIdealsAreSetThenCorrectedThenRestored(t *testing.T) {
	f := newFakeHost("/ca", "/cb", "/other")
	var during Setting
	steps := append([]func() account.Sample{func() account.Sample {
		during = f.weight("/ca")
		return journalling()
	}}, repeat(5, journalling)...)
	options := fakeOptions(t, f, twoEqual, steps...)
	var decisions []Decision
	options.OnInterval = func(d Decision) { decisions = append(decisions, d) }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if during.Effective() != 500 {
		t.Errorf("before the first sample /ca has %+v, want the ideal 500", during)
	}
	last := decisions[len(decisions)-1].Weights
	if len(decisions) != 6 || len(last) != 2 || last[0].After <= 520 || last[1].After >= 480 || last[0].After+last[1].After != 1000 {
		t.Errorf("decided %+v", last)
	}
	for _, cgroup := range []string{"/ca", "/cb", "/other"} {
		if got := f.weight(cgroup); got != (Setting{Default: 100}) {
			t.Errorf("in the end %s has %+v", cgroup, got)
		}
	}
	for _, write := range f.writes() {
		if strings.HasPrefix(write, "/other") {
			t.Errorf("wrote %s, which nobody asked for", write)
		}
	}
	if entries, _ := filepath.Glob(filepath.Join(options.Config.StateDir, "*.json")); len(entries) != 0 {
		t.Errorf("state left: %v", entries)
	}
}

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

func TestCgroupsVanishReturnAndAppear(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	options := fakeOptions(t, f, twoEqual,
		journalling,
		func() account.Sample { f.remove("/cb"); return journalling() },
		func() account.Sample {
			f.create("/cb") // another one of that name, with settings of its own
			f.mu.Lock()
			f.weights["/cb"] = Setting{Default: 250}
			f.mu.Unlock()
			return sampleOf(did("/ca", 1e8, 0))
		},
		journalling, journalling)
	var decisions []Decision
	options.OnInterval = func(d Decision) { decisions = append(decisions, d) }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if n := len(decisions[1].Weights); n != 1 {
		t.Errorf("with /cb gone %d were steered", n)
	}
	if at := decisions[2].Weights; len(at) != 2 || at[1].After != 500 {
		t.Errorf("the new /cb, idle, is at %+v, want its ideal at once", at)
	}
	if got := f.weight("/cb"); got != (Setting{Default: 250}) {
		t.Errorf("the new /cb was restored to %+v, its own was 250", got)
	}
}

func TestAReplacedCgroupIsNotRestoredInto(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	dir := t.TempDir()
	state := sampleState()
	state.Cgroups = []CgroupState{{Cgroup: "/ca", ID: f.ids["/ca"], Weight: Setting{Default: 100}}, {Cgroup: "/cb", ID: 5, Weight: Setting{Default: 9}}, {Cgroup: "/cc", ID: 6, Weight: Setting{Default: 9}}}
	if err := state.Save(dir); err != nil {
		t.Fatal(err)
	}
	outcome, ok, err := Restore(dir, "", "loop0", "", func(*State) (Host, error) { return f.host(), nil }, discard)
	if err != nil || !ok || !slices.Equal(outcome.Restored, []string{"/ca"}) || !slices.Equal(outcome.Replaced, []string{"/cb"}) || !slices.Equal(outcome.Vanished, []string{"/cc"}) {
		t.Errorf("%+v %v %v", outcome, ok, err)
	}
}

func TestAVanishedCgroupDuringTheWriteIsNoError(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	var log bytes.Buffer
	options := fakeOptions(t, f, twoEqual, repeat(4, journalling)...)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	writes := 0
	f.before = func(string) error {
		if writes++; writes == 3 {
			f.remove("/ca")
			f.remove("/cb")
		}
		return nil
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("log:\n%s", log.String())
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.limits["/cb"] = 50e6
	f.tunables["low_latency"] = "1"
	options := fakeOptions(t, f, "tunables: {low_latency: 0, timeout_sync: 40}\n"+twoEqual, repeat(3, journalling)...)
	options.DryRun = true
	options.Config.StateDir = filepath.Join(t.TempDir(), "none")
	var last Decision
	options.OnInterval = func(d Decision) { last = d }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if len(f.writes()) != 0 {
		t.Errorf("wrote %v", f.writes())
	}
	if _, err := os.Stat(options.Config.StateDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state directory was made: %v", err)
	}
	if len(last.Weights) != 2 || last.Weights[0].Before != 100 || last.Weights[0].After <= 500 || len(last.Limits) != 1 {
		t.Errorf("decided %+v", last)
	}
}

func TestLimitsAreLoweredByWhatEscapesThem(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.limits["/cb"] = 20e6
	options := fakeOptions(t, f, twoEqual, repeat(6, func() account.Sample {
		return sampleOf(did("/ca", 1e8, 0), did("/cb", 1e8, 25e6)) // 5 MB/s of journal
	})...)
	var lowest uint64 = 1 << 60
	f.before = func(what string) error {
		var bps uint64
		if _, err := fmt.Sscanf(what, "/cb limit %d", &bps); err == nil {
			lowest = min(lowest, bps)
		}
		return nil
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if lowest != 15e6 {
		t.Errorf("the limit was reduced to %d, want 15000000", lowest)
	}
	if f.limits["/cb"] != 20e6 {
		t.Errorf("in the end it is %d", f.limits["/cb"])
	}
}

func TestCorrectLimitKeepsAFloor(t *testing.T) {
	for _, c := range []struct {
		limit  uint64
		hidden float64
		want   uint64
	}{{100, 0, 100}, {100, 30, 70}, {100, 95, 10}, {100, 1e300, 10}, {5, 100, 1}, {1, 100, 1}, {100, -5, 100}} {
		if got := CorrectLimit(c.limit, c.hidden); got != c.want {
			t.Errorf("CorrectLimit(%d, %g) = %d, want %d", c.limit, c.hidden, got, c.want)
		}
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

func TestWhatSomeoneElseSetsIsRespected(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	options := fakeOptions(t, f, "containers: [{match: /ca}, {match: /cb}]",
		append(repeat(2, journalling), append([]func() account.Sample{func() account.Sample {
			f.mu.Lock()
			f.weights["/cb"] = Setting{Default: 300, Device: f.weights["/cb"].Device}
			f.mu.Unlock()
			return sampleOf(did("/ca", 50e6, 0), did("/cb", 70e6, 90e6))
		}}, repeat(3, journalling)...)...)...)
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if got := f.weight("/cb"); got != (Setting{Default: 300}) {
		t.Errorf("restored to %+v, someone had set 300 meanwhile", got)
	}
}

func TestReloadTakesAGoodConfigurationAndKeepsTheOldOverABadOne(t *testing.T) {
	f := newFakeHost("/ca", "/cb", "/cc")
	reload := make(chan os.Signal)
	options := fakeOptions(t, f, twoEqual)
	next := make(chan string, 1)
	options.Reload = reload
	options.Load = func() (Config, error) {
		config, err := ReadConfig(strings.NewReader(<-next), "test")
		config.StateDir = options.Config.StateDir
		return config, err
	}
	opened := make(chan time.Duration, 9)
	source := &groupingSource{scriptedSource: scriptedSource{wait: true}}
	options.OpenSource = func(_ []string, interval time.Duration) (account.Source, error) {
		opened <- interval
		return source, nil
	}
	var accepted []Config
	options.Accept = func(c Config) { accepted = append(accepted, c) }
	var log syncBuffer
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- Run(ctx, options) }()
	<-opened
	try := func(config string) {
		next <- config
		reload <- syscall.SIGHUP
		// The unbuffered channel takes a further signal only when the first
		// is answered; its configuration is the same.
		next <- config
		reload <- syscall.SIGHUP
	}
	try("containers: [{match: /ca, weight: 5000}]")
	try("law: nonsense")
	try("device: sdz")
	if len(accepted) != 0 || source.regrouped.Load() != 0 {
		t.Errorf("bad configurations had an effect: accepted %v, regrouped %d times", accepted, source.regrouped.Load())
	}
	if got := f.weight("/ca").Effective(); got != 500 {
		t.Errorf("after bad configurations /ca has %d", got)
	}
	if n := strings.Count(log.String(), "keeping the old configuration"); n < 3 {
		t.Errorf("log:\n%s", log.String())
	}
	try("interval: 10s\ncontainers: [{match: /ca, weight: 300}, {match: /cc, weight: 200}]")
	if got := <-opened; got != time.Second {
		t.Errorf("measuring every %v", got)
	}
	if a, b, c := f.weight("/ca").Effective(), f.weight("/cb"), f.weight("/cc").Effective(); a != 300 || b != (Setting{Default: 100}) || c != 200 {
		t.Errorf("weights %d %+v %d, want 300, restored, 200", a, b, c)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(accepted) < 1 || len(accepted[0].Containers) != 2 || int(source.regrouped.Load()) != len(accepted) {
		t.Errorf("accepted %v, regrouped %d times", accepted, source.regrouped.Load())
	}
	for _, cgroup := range []string{"/ca", "/cb", "/cc"} {
		if got := f.weight(cgroup); got != (Setting{Default: 100}) {
			t.Errorf("in the end %s has %+v", cgroup, got)
		}
	}
}

// groupingSource counts how often it is asked to regroup.
type groupingSource struct {
	scriptedSource
	regrouped atomic.Int32
}

func (s *groupingSource) Regroup() { s.regrouped.Add(1) }

func TestWithoutAListTheWeightsFoundAreMadeTrue(t *testing.T) {
	f := newFakeHost("/ca", "/cb", "/quiet", "/d/x")
	f.weights["/ca"] = Setting{Default: 300}
	options := fakeOptions(t, f, "", repeat(6, func() account.Sample {
		return sampleOf(did("/ca", 150e6, 0), did("/cb", 35e6, 15e6), did(account.RootCgroup, 1e6, 0))
	})...)
	var last Decision
	options.OnInterval = func(d Decision) { last = d }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if len(last.Weights) != 2 || last.Weights[0].Ideal != 300 || last.Weights[1].Ideal != 100 || last.Weights[1].After >= 95 {
		t.Errorf("decided %+v", last.Weights)
	}
	for _, write := range f.writes() {
		if strings.HasPrefix(write, "/quiet") || strings.HasPrefix(write, "/d") {
			t.Errorf("wrote %s", write)
		}
	}
}

func TestLowLatencyIsReportedOrSwitched(t *testing.T) {
	for _, test := range []struct {
		tunables, during string
		told             int
	}{{"", "0", 0}, {"tunables: auto\n", "0", 0}, {"tunables: none\n", "1", 1}, {"tunables: {low_latency: 1}\n", "1", 0}} {
		f := newFakeHost("/ca")
		f.tunables["low_latency"] = "1"
		var log bytes.Buffer
		options := fakeOptions(t, f, test.tunables+"containers: [{match: /ca, weight: 500}]", repeat(3, journalling)...)
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		during := ""
		options.OnInterval = func(Decision) { during = f.tunables["low_latency"] }
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "low_latency is on"); n != test.told || during != test.during || f.tunables["low_latency"] != "1" {
			t.Errorf("%q: logged %d times, %s during control and %s in the end; want %d and %s, then 1",
				test.tunables, n, during, f.tunables["low_latency"], test.told, test.during)
		}
	}
}

func TestASourceThatFailsEndsItWithEverythingRestored(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	options := fakeOptions(t, f, twoEqual)
	options.OpenSource = func([]string, time.Duration) (account.Source, error) { return &failingSource{}, nil }
	err := Run(context.Background(), options)
	if err == nil || !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("error %v", err)
	}
	options.OpenSource = func([]string, time.Duration) (account.Source, error) { return nil, errors.New("no BTF") }
	if err := Run(context.Background(), options); err == nil || !strings.Contains(err.Error(), "no BTF") {
		t.Errorf("error %v", err)
	}
	for _, cgroup := range []string{"/ca", "/cb"} {
		if got := f.weight(cgroup); got != (Setting{Default: 100}) {
			t.Errorf("%s has %+v", cgroup, got)
		}
	}
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

type failingSource struct{ calls int }

func (s *failingSource) Next(context.Context) (account.Sample, error) {
	if s.calls++; s.calls > 2 {
		return account.Sample{}, errors.New("the disk is gone")
	}
	return journalling(), nil
}
func (s *failingSource) Close() error { return nil }

func TestSamplesWithoutSenseAreSurvived(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	options := fakeOptions(t, f, twoEqual,
		func() account.Sample { return account.Sample{} },
		func() account.Sample { s := journalling(); s.IntervalSeconds = -3; return s },
		func() account.Sample {
			return sampleOf(did("/ca", 1<<63, 1<<63), did("", 5, 5), did("//x/../ca", 5, 5), did("/cb", 1, 1))
		},
		func() account.Sample { s := journalling(); s.Time = time.Unix(-1e9, 0); return s }) // a clock step
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
}

// A cgroup's name is any bytes, and the state is JSON: names that are not UTF-8 would be the
// same there, and the state would be refused.
func TestACgroupWhoseNameIsNoTextIsLeftAlone(t *testing.T) {
	f := newFakeHost("/ca", "/cb", "/c\xff", "/c\xfe")
	options := fakeOptions(t, f, "containers: [{match: '/c*', weight: 500}]", repeat(3, journalling)...)
	options.OnInterval = func(Decision) {
		if state, err := LoadState(options.Config.StateDir, "loop0"); err != nil || len(state.Cgroups) != 2 {
			t.Errorf("the state is %+v, %v; want two cgroups", state, err)
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	for _, write := range f.writes() {
		if strings.HasPrefix(write, "/c\xff") || strings.HasPrefix(write, "/c\xfe") {
			t.Errorf("wrote %q", write)
		}
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
