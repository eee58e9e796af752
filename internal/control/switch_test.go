package control

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/control/law"
)

// switchable is a disk whose scheduler can be changed to one without weights and
// back.
func (f *fakeHost) switchable(disk Disk) Disk {
	disk.Reopen = func(actuator string, found map[string]uint64) (Disk, error) {
		disk := f.switchable(disk)
		disk.Host = f.host()
		disk.Host.Scheduler = f.scheduler
		if f.scheduler == "bfq" {
			return disk, nil
		}
		if actuator == ActuatorWeights {
			return Disk{}, fmt.Errorf("loop0: %w", cgroup.ErrNoWeights)
		}
		disk.Host = f.unweighted()
		disk.Host.Weights, disk.Host.Scheduler = fakeNoWeights{fakeWeights{f}}, f.scheduler
		return disk, nil
	}
	return disk
}

// fakeNoWeights are weights without a file.
type fakeNoWeights struct{ fakeWeights }

func (f fakeNoWeights) Get(cgroup string) (Setting, error) {
	_, err := fakeCgroups{f.fakeHost}.ID(cgroup)
	return Setting{Default: plainWeight}, err
}

// choosesScheduler does before a step what an operator does: the weights on the
// disk are lost with the scheduler, and the files with its module.
func (f *fakeHost) choosesScheduler(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scheduler, f.noWeightFile = name, name != "bfq"
	for path, setting := range f.weights {
		f.weights[path] = Setting{Default: setting.Default}
	}
	f.log = append(f.log, "scheduler "+name)
}

func TestControlFollowsAChangeOfTheScheduler(t *testing.T) {
	for _, actuator := range []string{ActuatorAuto, ActuatorWeights} {
		t.Run(actuator, func(t *testing.T) {
			f := newFakeHost("/ca", "/cb")
			f.reads["/cb"] = 500e6 // the operator's own
			steps := deepReaders(f, 45, func(int) bool { return f.scheduler == "bfq" })
			for n, scheduler := range map[int]string{10: "none", 30: "bfq"} {
				step := steps[n]
				steps[n] = func() account.Sample { f.choosesScheduler(scheduler); return step() }
			}
			options := fakeOptions(t, f, "actuator: "+actuator+"\n"+twoEqual, steps...)
			options.Disks[0] = f.switchable(options.Disks[0])
			var log bytes.Buffer
			options.Log = slog.New(slog.NewTextHandler(&log, nil))
			var last Decision
			n := 0
			var ignored bool
			options.OnInterval = func(d Decision) {
				last, n = d, n+1
				if n == 30 && f.scheduler == "none" && (d.Weights[0].Share < 0.48 || d.Weights[0].Share > 0.52) {
					t.Errorf("without weights: share %.3f; want 0.5", d.Weights[0].Share)
				}
			}
			options.OnIdeals = func(_ string, ideals Ideals) { ignored = ignored || ideals.Control.WeightsIgnored }
			if err := Run(context.Background(), options); err != nil {
				t.Fatal(err)
			}
			want := 45
			if actuator == ActuatorWeights {
				want -= 20 // nothing is done without weights
			}
			if n != want || last.Weights[0].Share < 0.48 || last.Weights[0].Share > 0.52 {
				t.Errorf("%d intervals, the last: %+v; want %d", n, last, want)
			}
			if ignored != (actuator == ActuatorWeights) {
				t.Errorf("other programs see that weights are ignored: %v", ignored)
			}
			for text, times := range map[string]int{
				"changed from bfq to none": 1, "changed from none to bfq": 1, "level=ERROR": 0,
			} {
				if got := strings.Count(log.String(), text); got != times {
					t.Errorf("%q was logged %d times; want %d:\n%s", text, got, times, log.String())
				}
			}
			without, limited := false, false
			for _, what := range f.writes() {
				if scheduler, ok := strings.CutPrefix(what, "scheduler "); ok {
					without = scheduler == "none"
				}
				limited = limited || without && strings.Contains(what, "limit") && !strings.Contains(what, "limit 0")
				if without && (strings.Contains(what, "weight") || strings.Contains(what, "restore")) {
					t.Errorf("without weights: %s", what)
				}
			}
			if limited != (actuator == ActuatorAuto) {
				t.Errorf("limits held the shares: %v", limited)
			}
			if f.reads["/ca"] != 0 || f.reads["/cb"] != 500e6 || f.limits["/ca"] != 0 || f.weight("/ca") != (Setting{Default: 100}) {
				t.Errorf("in the end: read limits %v, write limits %v, weight %+v", f.reads, f.limits, f.weight("/ca"))
			}
		})
	}
}

// BFQ takes no weight above 1000, so that control cannot start again under it.
func TestAnEndOfControlAfterAChangeOfTheSchedulerIsReported(t *testing.T) {
	one, two := newFakeHost("/ca", "/cb"), newFakeHost("/ca", "/cb")
	two.choosesScheduler("none")
	gone := false
	options := twoDisks(t, one, two, &gone, 8)
	options.Config.Containers = []Rule{{Match: "/ca", Weight: 5000}, {Match: "/cb", Weight: 5000}}
	options.Disks[1] = two.switchable(options.Disks[1])
	wide := func(disk Disk) Disk {
		disk.Host.Weights = wideWeights{disk.Host.Weights}
		return disk
	}
	unweighted, err := options.Disks[1].Reopen(ActuatorAuto, nil)
	if err != nil {
		t.Fatal(err)
	}
	options.Disks = []Disk{wide(options.Disks[0]), wide(unweighted)}
	ideals := map[string]bool{}
	options.OnIdeals = func(device string, _ Ideals) { ideals[device] = true }
	var ended []string
	options.OnEnd = func(device string) { ended = append(ended, device) }
	count := map[string]int{}
	options.OnInterval = func(d Decision) {
		if count[d.Device]++; d.Device == "loop1" && count["loop1"] == 3 {
			two.choosesScheduler("bfq")
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if !ideals["loop0"] || !ideals["loop1"] || count["loop0"] != 8 || count["loop1"] != 3 || !slices.Equal(ended, []string{"loop1"}) {
		t.Errorf("ideals of %v, intervals %v, ended %q; want only loop1 to end, after 3", ideals, count, ended)
	}
}

// wideWeights take the weights of io.weight.
type wideWeights struct{ WeightStore }

func (wideWeights) Range() law.Range { return law.Range{Min: 1, Max: 10_000} }

// As with "echo none > scheduler; echo bfq > scheduler": control restores everything in between, which
// can take long.
func TestASchedulerThatIsChosenWhileControlStartsAgainIsFollowed(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	choose := func(scheduler string) {
		f.choosesScheduler(scheduler)
		f.tunables["low_latency"] = "1"
	}
	choose("bfq")
	steps := deepReaders(f, 20, func(int) bool { return f.scheduler == "bfq" })
	step := steps[10]
	steps[10] = func() account.Sample { choose("none"); return step() }
	options := fakeOptions(t, f, "tunables: {low_latency: 0}\n"+twoEqual, steps...)
	options.Disks[0] = f.switchable(options.Disks[0])
	reopen := options.Disks[0].Reopen
	options.Disks[0].Reopen = func(actuator string, found map[string]uint64) (Disk, error) {
		disk, err := reopen(actuator, found)
		if f.scheduler == "none" {
			choose("bfq")
		}
		return disk, err
	}
	n := 0
	options.OnInterval = func(d Decision) {
		if n++; n == 14 && (f.weight("/ca").Device == 0 || f.weight("/cb").Device == 0 || f.reads["/ca"] != 0 || f.reads["/cb"] != 0 || f.tunables["low_latency"] != "0") {
			t.Errorf("after BFQ is chosen during the start: weights %v, limits %v, tunables %v", f.weights, f.reads, f.tunables)
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if n != 20 || f.weight("/ca") != (Setting{Default: 100}) || f.reads["/ca"] != 0 || f.reads["/cb"] != 0 || f.tunables["low_latency"] != "1" {
		t.Errorf("after %d intervals and the end: weights %v, limits %v, tunables %v", n, f.weights, f.reads, f.tunables)
	}
}

// Under a scheduler without weights "actuator: weights" stops control. A reload that
// allows limits starts it again.
func TestAReloadThatAllowsLimitsStartsControlAgain(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	steps := deepReaders(f, 60, func(int) bool { return f.scheduler == "bfq" })
	options := fakeOptions(t, f, "actuator: weights\n"+twoEqual, steps...)
	reload := make(chan os.Signal)
	options.Reload = reload
	options.Load = func() (Config, error) {
		next := options.Config
		next.Actuator = ActuatorAuto
		return next, nil
	}
	none, again := steps[10], steps[20]
	steps[10] = func() account.Sample { f.choosesScheduler("none"); return none() }
	steps[20] = func() account.Sample { reload <- syscall.SIGHUP; return again() }
	options.Disks[0] = f.switchable(options.Disks[0])
	var log bytes.Buffer
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	var last Decision
	n := 0
	options.OnInterval = func(d Decision) { last, n = d, n+1 }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if n < 45 || n > 55 || last.Weights[0].Share < 0.48 || last.Weights[0].Share > 0.52 {
		t.Errorf("%d intervals, the last: %+v; want about 50, and half of the disk", n, last)
	}
	if times := strings.Count(log.String(), "control starts again"); times != 1 {
		t.Errorf("control started again %d times; want once:\n%s", times, log.String())
	}
}

// Choosing BFQ again resets the tunables as well as the weights.
func TestTunablesAreHeldUnderASchedulerThatIsChosenAgain(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.tunables["low_latency"], f.tunables["nr_requests"] = "1", "64"
	steps := deepReaders(f, 20, func(int) bool { return true })
	options := fakeOptions(t, f, "tunables: {low_latency: 0, nr_requests: 256}\n"+twoEqual, steps...)
	anew := steps[10]
	steps[10] = func() account.Sample {
		f.choosesScheduler("bfq")
		f.tunables["low_latency"], f.tunables["nr_requests"] = "1", "64"
		return anew()
	}
	n := 0
	options.OnInterval = func(Decision) {
		if n++; n == 12 && (f.tunables["low_latency"] != "0" || f.tunables["nr_requests"] != "256") {
			t.Errorf("after BFQ is chosen anew: %v", f.tunables)
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if n < 12 || f.tunables["low_latency"] != "1" || f.tunables["nr_requests"] != "64" {
		t.Errorf("after %d intervals and the end: %v", n, f.tunables)
	}
}
