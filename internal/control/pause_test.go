package control

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// After SIGSTOP the next sample is of the whole pause. Nothing corrected the weights
// meanwhile, so it is no reason for tunables or limits.
func TestAPauseOfControlIsNotTheFaultOfTheWeights(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "slice_idle": "8", "nr_requests": "256"}
	var log bytes.Buffer
	options := fakeOptions(t, f, twoEqual)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	c := began(t, options)
	step := func(seconds, a, b float64) {
		ca, cb := did("/ca", uint64(a*40e6*seconds), 0), did("/cb", uint64(b*40e6*seconds), 0)
		ca.BusySeconds, cb.BusySeconds = seconds, seconds
		sample := sampleOf(ca, cb)
		sample.IntervalSeconds = seconds
		c.interval(sample)
	}
	for range 40 {
		step(0.5, 0.5, 0.5)
	}
	step(60, 0.8, 0.2)
	for range 40 {
		step(0.5, 0.5, 0.5)
	}
	if c.scheduler.Ignored || c.scheduler.limiting || c.tuning.level != 0 || strings.Contains(log.String(), "level=WARN") {
		t.Errorf("limits %t, tunables of level %d:\n%s", c.scheduler.limiting, c.tuning.level, log.String())
	}
	// The same in steps of a usual length is a reason.
	for range 40 {
		step(0.5, 0.8, 0.2)
	}
	if c.tuning.level == 0 {
		t.Errorf("no tunables are set:\n%s", log.String())
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
}

// With many containers on one disk, a step of every disk lasts the whole interval. That is no pause.
func TestAStepThatIsLongBecauseOfAnotherDiskIsNoPause(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "slice_idle": "8", "nr_requests": "256"}
	options := fakeOptions(t, f, twoEqual)
	options.Disks = append(options.Disks, Disk{Device: "many", Dev: "7:1", Host: newFakeHost().host()})
	c := began(t, options)
	for range 4 {
		ca, cb := did("/ca", 160e6, 0), did("/cb", 40e6, 0)
		ca.BusySeconds, cb.BusySeconds = 5, 5
		sample := sampleOf(ca, cb)
		sample.IntervalSeconds = 5.01
		sample.Devices = append(sample.Devices, account.Device{Device: "many", Containers: make([]account.Container, maxStepped+1)})
		c.interval(sample)
	}
	if c.late || c.tuning.level == 0 {
		t.Errorf("late %t, and tunables of level %d; want some, because shares are missed", c.late, c.tuning.level)
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
}

// The number of containers decides about the length of the next step, and not of the one in which
// they are counted. So it can go up and down.
func TestAStepThatWasLongForMoreContainersIsNoPause(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "slice_idle": "8", "nr_requests": "256"}
	c := began(t, fakeOptions(t, f, twoEqual))
	seconds := MinStep.Seconds()
	for n := range 20 {
		ca, cb := did("/ca", uint64(32e6*seconds), 0), did("/cb", uint64(8e6*seconds), 0)
		ca.BusySeconds, cb.BusySeconds = seconds, seconds
		sample := sampleOf(ca, cb)
		sample.IntervalSeconds = seconds
		if seconds = MinStep.Seconds(); n%2 == 0 {
			sample.Devices[1].Containers = append(sample.Devices[1].Containers, make([]account.Container, maxStepped)...)
			seconds = 5.01
		}
		c.interval(sample)
	}
	if c.tuning.level == 0 {
		t.Error("no tunables are set, though shares are missed")
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
}

// Where the ideals could not be recorded, they are recorded once that is possible.
func TestIdealsAreRecordedOnceThereIsRoom(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	options := fakeOptions(t, f, twoEqual)
	c := began(t, options)
	c.interval(journalling())
	recorded := func() uint64 {
		ideals, err := LoadIdeals(options.Config.StateDir, "loop0", fakeCgroups{f}.ID)
		if err != nil {
			t.Fatal(err)
		}
		return ideals.Weights["/cb"]
	}
	next := c.config
	next.StateDir, next.Containers = "/nowhere", slices.Clone(next.Containers)
	next.Containers[1].Weight = 300
	c.use(next)
	if got := recorded(); got != 500 {
		t.Fatalf("the state could be saved: an ideal weight of %d", got)
	}
	c.config.StateDir = options.Config.StateDir
	c.interval(idle())
	if got := recorded(); got != 300 {
		t.Errorf("the state has an ideal weight of %d, want 300", got)
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
}
