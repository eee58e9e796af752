package control

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/systemd"
)

// choose changes a cgroup's weights like another program.
func (f *fakeHost) choose(cgroup string, s Setting) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.weights[cgroup] = s
}

func idle() account.Sample { return sampleOf(did("/ca", 0, 0), did("/cb", 0, 0)) }

// steady leads to no correction: shares as configured, nothing hidden.
func steady() account.Sample { return sampleOf(did("/ca", 50e6, 0), did("/cb", 50e6, 0)) }

// onlyA leaves /cb idle.
func onlyA() account.Sample { return sampleOf(did("/ca", 50e6, 10e6), did("/cb", 0, 0)) }

func TestAWeightThatAnotherProgramChoseIsKept(t *testing.T) {
	for name, load := range map[string]func() account.Sample{"no load": idle, "nothing to correct": steady, "an idle cgroup": onlyA, "corrections": journalling} {
		for _, config := range []string{"", twoEqual, "containers: [{match: /ca}, {match: /cb}]"} {
			for what, chosen := range map[string]func(Setting) Setting{
				"BFQ's default":      func(Setting) Setting { return Setting{Default: 300} }, // removes the disk's own weight
				"the disk's own":     func(s Setting) Setting { return Setting{Default: s.Default, Device: 300} },
				"io.cost's default":  func(s Setting) Setting { return Setting{Default: 300, Device: s.Device} },
				"the first as found": func(s Setting) Setting { return Setting{Default: 100} },
			} {
				t.Run(name+", "+config+", "+what, func(t *testing.T) {
					f := newFakeHost("/ca", "/cb")
					var log bytes.Buffer
					var last Decision
					var before, wanted Setting
					steps := append(repeat(3, journalling), func() account.Sample {
						before = f.weight("/cb")
						wanted = chosen(before)
						f.choose("/cb", wanted)
						return load()
					}, func() account.Sample {
						if got := f.weight("/cb"); got != wanted {
							t.Errorf("one interval later it is %+v, want %+v", got, wanted)
						}
						return load()
					})
					options := fakeOptions(t, f, config, append(steps, repeat(3, load)...)...)
					options.Log = slog.New(slog.NewTextHandler(&log, nil))
					options.OnInterval = func(d Decision) { last = d }
					if err := Run(context.Background(), options); err != nil {
						t.Fatal(err)
					}
					want := wanted
					if wanted.Default != 100 {
						want.Device = 0 // Daybook's own weight is removed
					}
					if got := f.weight("/cb"); got != want {
						t.Errorf("in the end %+v, want %+v", got, want)
					}
					if n := len(last.Weights); n != 2 || last.Weights[1].Ideal != want.Effective() {
						t.Errorf("the ideal in the end: %+v, want %d", last.Weights, want.Effective())
					}
					if n := strings.Count(log.String(), "another program changed the weight"); n != 1 {
						t.Errorf("logged %d times:\n%s", n, log.String())
					}
					if got := f.weight("/ca"); got != (Setting{Default: 100}) {
						t.Errorf("/ca, which nobody else changed, has %+v", got)
					}
				})
			}
		}
	}
}

func TestAWeightChosenAfterTheLastIntervalIsKept(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	options := fakeOptions(t, f, twoEqual, repeat(3, journalling)...)
	n := 0
	options.OnInterval = func(Decision) {
		if n++; n == 3 {
			f.choose("/cb", Setting{Default: 100, Device: 222})
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if got := f.weight("/cb"); got != (Setting{Default: 100, Device: 222}) {
		t.Errorf("/cb has %+v", got)
	}
	if got := f.weight("/ca"); got != (Setting{Default: 100}) {
		t.Errorf("/ca has %+v", got)
	}
}

func TestWhatIsChosenAfterAKillIsKept(t *testing.T) {
	for _, again := range []string{"restore", "start"} {
		t.Run(again, func(t *testing.T) {
			f := newFakeHost("/ca", "/cb", "/cc")
			f.limits["/ca"], f.limits["/cc"] = 50e6, 50e6
			f.tunables["low_latency"], f.tunables["timeout_sync"] = "1", "125"
			const config = "tunables: {low_latency: 0, timeout_sync: 40}\n" +
				"containers: [{match: /ca, weight: 500}, {match: /cb, weight: 500}, {match: /cc, weight: 500}]"
			options := fakeOptions(t, f, config, repeat(4, func() account.Sample {
				return sampleOf(did("/ca", 1e8, 1e7), did("/cb", 7e7, 3e7), did("/cc", 5e7, 4e7))
			})...)
			c, err := start(options, options.Disks[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := c.begin(); err != nil {
				t.Fatal(err)
			}
			for _, sample := range repeat(4, journalling) {
				c.interval(sample())
			}
			c.lock.Release() // as at a kill
			f.choose("/cb", Setting{Default: 300})
			f.mu.Lock()
			f.limits["/ca"], f.tunables["timeout_sync"] = 7e6, "80"
			f.mu.Unlock()
			if again == "restore" {
				if _, ok, err := Restore(options.Config.StateDir, "", "loop0", "", func(*State) (Host, error) { return f.host(), nil }, discard); !ok || err != nil {
					t.Fatal(ok, err)
				}
			} else {
				c, err := start(options, options.Disks[0])
				if err != nil {
					t.Fatal(err)
				}
				c.lock.Release()
			}
			for cgroup, want := range map[string]Setting{"/ca": {Default: 100}, "/cb": {Default: 300}, "/cc": {Default: 100}} {
				if got := f.weight(cgroup); got != want {
					t.Errorf("%s has %+v, want %+v", cgroup, got, want)
				}
			}
			if f.limits["/ca"] != 7e6 || f.limits["/cc"] != 50e6 {
				t.Errorf("limits %v", f.limits)
			}
			if f.tunables["low_latency"] != "1" || f.tunables["timeout_sync"] != "80" {
				t.Errorf("tunables %v", f.tunables)
			}
		})
	}
}

func TestAReloadEnforcesTheConfiguredWeightAgain(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	reload := make(chan os.Signal)
	options := fakeOptions(t, f, twoEqual)
	options.Reload = reload
	options.Load = func() (Config, error) { return options.Config, nil }
	samples := make(chan account.Sample)
	options.OpenSource = func([]string, time.Duration) (account.Source, error) { return channelSource(samples), nil }
	var ideals []uint64
	options.OnInterval = func(d Decision) { ideals = append(ideals, d.Weights[1].Ideal) }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- Run(ctx, options) }()
	samples <- steady()
	samples <- steady()
	f.choose("/cb", Setting{Default: 300})
	samples <- steady()
	samples <- steady()
	reload <- syscall.SIGHUP
	samples <- steady()
	samples <- steady()
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(ideals) < 5 || ideals[0] != 500 || ideals[2] != 300 || ideals[4] != 500 {
		t.Errorf("ideals %v, want 500, then the 300 that was chosen, then 500 again", ideals)
	}
	if got := f.weight("/cb"); got != (Setting{Default: 300}) {
		t.Errorf("in the end %+v, want what was chosen", got)
	}
}

// channelSource returns the samples of a channel.
type channelSource chan account.Sample

func (s channelSource) Next(ctx context.Context) (account.Sample, error) {
	select {
	case <-ctx.Done():
		return account.Sample{}, ctx.Err()
	case sample := <-s:
		return sample, nil
	}
}

func (s channelSource) Close() error { return nil }

func TestChoosingASchedulerAgainChangesNoIdealWeight(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	steps := append(repeat(3, journalling), func() account.Sample {
		f.choose("/ca", Setting{Default: 100}) // as after: echo none, then bfq
		f.choose("/cb", Setting{Default: 100})
		return journalling()
	}, journalling)
	options := fakeOptions(t, f, twoEqual, steps...)
	var last Decision
	options.OnInterval = func(d Decision) { last = d }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if len(last.Weights) != 2 || last.Weights[0].Ideal != 500 || last.Weights[0].After < 400 {
		t.Errorf("in the end %+v; want the configured weights", last.Weights)
	}
	if got := f.weight("/ca"); got != (Setting{Default: 100}) {
		t.Errorf("in the end %+v", got)
	}
}

// As when the placements in all cgroups end in the same step. The kernel removes the weights on a
// disk only if its scheduler is chosen again.
func TestWeightsThatAnotherProgramRemovedAtOnceStayRemoved(t *testing.T) {
	for _, again := range []bool{false, true} {
		f := newFakeHost("/ca", "/cb")
		inode := uint64(7)
		give := func(setting Setting) func() account.Sample {
			return func() account.Sample {
				f.choose("/ca", setting)
				f.choose("/cb", setting)
				if again && setting.Device == 0 {
					inode++
				}
				return journalling()
			}
		}
		options := fakeOptions(t, f, twoEqual, journalling, give(Setting{Default: 100, Device: 321}), journalling,
			give(Setting{Default: 100}), journalling, journalling)
		options.Disks[0].Host.SchedulerInode = func() uint64 { return inode }
		var last Decision
		options.OnInterval = func(d Decision) { last = d }
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		ideal, original := uint64(100), Setting{Default: 100}
		if again {
			ideal, original = 321, Setting{Default: 100, Device: 321}
		}
		if len(last.Weights) != 2 || last.Weights[0].Ideal != ideal || f.weight("/ca") != original {
			t.Errorf("the scheduler was chosen again: %t; then the ideals are %+v, and in the end /ca has %+v; want %d, %+v", again, last.Weights, f.weight("/ca"), ideal, original)
		}
	}
}

// On cgroup v1 a daemon-reload writes the default weight of each unit again, which removes BFQ's
// weight on the disk from all of them at once, without a choice of anybody.
func TestAWeightThatSystemdRemovedOnCgroupV1IsWrittenAgain(t *testing.T) {
	const unitA, unitB = "/system.slice/a.scope", "/system.slice/b.scope"
	for name, c := range map[string]struct {
		a, b         string
		original, to Setting
		placed       Setting // what another program gives both of them first
		ideals       [2]uint64
		again        bool
	}{
		"daemon-reload":                    {a: unitA, b: unitB, to: Setting{Default: 100}, ideals: [2]uint64{700, 300}, again: true},
		"the units' own weights":           {a: unitA, b: unitB, original: Setting{Default: 200}, to: Setting{Default: 200}, ideals: [2]uint64{700, 300}, again: true},
		"another weight":                   {a: unitA, b: unitB, to: Setting{Default: 300}, ideals: [2]uint64{300, 300}},
		"cgroups of no unit":               {a: "/docker/a", b: "/docker/b", to: Setting{Default: 100}, ideals: [2]uint64{100, 100}},
		"a weight of another program ends": {a: unitA, b: unitB, placed: Setting{Default: 100, Device: 321}, to: Setting{Default: 100}, ideals: [2]uint64{100, 100}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeHost("/system.slice", "/docker", c.a, c.b)
			load := func() account.Sample { return sampleOf(did(c.a, 70e6, 10e6), did(c.b, 20e6, 0)) }
			give := func(setting Setting) func() account.Sample {
				return func() account.Sample {
					f.choose(c.a, setting)
					f.choose(c.b, setting)
					return load()
				}
			}
			if c.original.Default != 0 {
				give(c.original)()
			}
			steps := repeat(3, load)
			if c.placed.Default != 0 {
				steps = append(append(steps, give(c.placed)), repeat(2, load)...)
			}
			steps = append(append(steps, give(c.to)), repeat(3, load)...)
			options := fakeOptions(t, f, "containers: [{match: "+c.a+", weight: 700}, {match: "+c.b+", weight: 300}]", steps...)
			options.Disks[0].Host.SchedulerInode = func() uint64 { return 7 }
			options.Disks[0].Host.WrittenBySystemd = systemd.NamedLikeUnit
			var log bytes.Buffer
			options.Log = slog.New(slog.NewTextHandler(&log, nil))
			var last Decision
			options.OnInterval = func(d Decision) { last = d }
			if err := Run(context.Background(), options); err != nil {
				t.Fatal(err)
			}
			if n := len(last.Weights); n != 2 || last.Weights[0].Ideal != c.ideals[0] || last.Weights[1].Ideal != c.ideals[1] {
				t.Errorf("in the end %+v; want the ideals %v", last.Weights, c.ideals)
			}
			if again := !strings.Contains(log.String(), "another program changed the weight"); again != c.again {
				t.Errorf("written again: %t, want %t\n%s", again, c.again, log.String())
			}
			if now := f.weight(c.a); now != c.to {
				t.Errorf("in the end %+v, want %+v", now, c.to)
			}
		})
	}
}

func TestAFightOverAWeightIsReportedOnce(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	var log bytes.Buffer
	options := fakeOptions(t, f, twoEqual, repeat(12, func() account.Sample {
		f.choose("/cb", Setting{Default: 300})
		return journalling()
	})...)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "another program changed the weight"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	if got := f.weight("/cb"); got != (Setting{Default: 300}) {
		t.Errorf("in the end %+v", got)
	}
}

func TestAWeightThatARuntimeGivesANewCgroupIsNoChoice(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	late := func() account.Sample { return sampleOf(did("/ca", 1e8, 0), did("/late", 1e8, 1e6)) }
	steps := append(repeat(2, journalling),
		func() account.Sample { f.create("/late"); return late() },
		late,
		func() account.Sample { f.choose("/late", Setting{Default: 300}); return late() },
		late, late)
	options := fakeOptions(t, f, twoEqual[:len(twoEqual)-1]+", {match: /late, weight: 500}]", steps...)
	var last Decision
	options.OnInterval = func(d Decision) { last = d }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if n := len(last.Weights); n != 3 || last.Weights[2].Ideal != 500 || last.Weights[2].Before == 300 {
		t.Errorf("in the end %+v; want the configured weight", last.Weights)
	}
	if got := f.weight("/late"); got != (Setting{Default: 300}) {
		t.Errorf("restored to %+v, it was made with 300", got)
	}
}

// The manager of a user removes the weight on the disk at each reload, without a choice of
// anybody. A weight of the user's own stays.
func TestAWeightThatAUsersManagerRemovedIsWrittenAgain(t *testing.T) {
	const a, b = "/user.slice/user-1000.slice/user@1000.service/user.slice/a.scope", "/user.slice/user-1000.slice/user@1000.service"
	load := func() account.Sample { return sampleOf(did(a, 50e6, 10e6), did(b, 50e6, 0)) }
	for name, c := range map[string]struct {
		changed string
		to      Setting
		again   bool
	}{
		"removed":                      {a, Setting{Default: 100}, true},
		"chosen by the user":           {a, Setting{Default: 300}, false},
		"of the manager, not its unit": {b, Setting{Default: 100}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeHost(a, b)
			var log bytes.Buffer
			var now, kept Setting
			steps := append(repeat(3, load), func() account.Sample {
				if f.weight(c.changed).Device == 0 {
					t.Fatal("control gave it no weight")
				}
				f.choose(c.changed, c.to)
				return load()
			}, load, load, func() account.Sample {
				now = f.weight(c.changed)
				return load()
			})
			options := fakeOptions(t, f, "containers: [{match: "+a+", weight: 300}, {match: "+b+", weight: 200}]", steps...)
			options.Log = slog.New(slog.NewTextHandler(&log, nil))
			if err := Run(context.Background(), options); err != nil {
				t.Fatal(err)
			}
			kept = f.weight(c.changed)
			if again := now.Device != 0 && !strings.Contains(log.String(), "another program changed the weight"); again != c.again {
				t.Errorf("later it is %+v; written again: %v, want %v\n%s", now, again, c.again, log.String())
			}
			if kept != c.to {
				t.Errorf("in the end %+v, want %+v", kept, c.to)
			}
		})
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
