package control

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/control/law"
)

// fakeWriteback counts what was started; started blocks until released if hold is set.
type fakeWriteback struct {
	mu      sync.Mutex
	started int
	began   chan struct{}
	hold    chan struct{}
	err     error
}

func newFakeWriteback() *fakeWriteback { return &fakeWriteback{began: make(chan struct{}, 1000)} }

func (f *fakeWriteback) StartMetadata() error {
	f.mu.Lock()
	f.started++
	f.mu.Unlock()
	f.began <- struct{}{}
	if f.hold != nil {
		<-f.hold
	}
	return f.err
}

func (f *fakeWriteback) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.started
}

// runWithWriteback runs control for some steps. In each, wait sees what was started.
func runWithWriteback(t *testing.T, f *fakeWriteback, config string, change func(*Options), steps int, wait func(step int)) {
	t.Helper()
	host := newFakeHost("/ca", "/cb")
	step := 0
	options := fakeOptions(t, host, config, repeat(steps, func() account.Sample {
		wait(step)
		step++
		return journalling()
	})...)
	options.Disks[0].Host.Writeback, options.Disks[0].Host.CostDivides = f, true
	if change != nil {
		change(&options)
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
}

func TestMetadataIsWrittenEarlyWhereIOCostDividesOrTheConfigurationSays(t *testing.T) {
	notByCost := func(o *Options) { o.Disks[0].Host.CostDivides = false }
	for name, c := range map[string]struct {
		config string
		change func(*Options)
		want   bool
	}{
		"auto, io.cost":    {"", nil, true},
		"auto, BFQ":        {"", notByCost, false},
		"early, BFQ":       {"metadata: early", notByCost, true},
		"kernel, io.cost":  {"metadata: kernel", nil, false},
		"dry run, io.cost": {"", func(o *Options) { o.DryRun = true }, false},
		"no writeback":     {"metadata: early", func(o *Options) { o.Disks[0].Host.Writeback = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeWriteback()
			runWithWriteback(t, f, twoEqual+"\n"+c.config, c.change, 4, func(step int) {
				if !c.want || step == 0 {
					return
				}
				select { // at the end of each step, and so before the next sample
				case <-f.began:
				case <-time.After(awaittest.Patience):
					t.Errorf("step %d started no writeback", step)
				}
			})
			if !c.want && f.count() != 0 {
				t.Errorf("writeback was started %d times", f.count())
			}
		})
	}
}

func TestMetadataIsWrittenEarlyOnADiskWithoutWeightsIfTheConfigurationSays(t *testing.T) {
	host := unweightedHost(cgroup.Open(cgroup.V2, t.TempDir()), blockdev.Disk{Name: "vda"}, "none", nil)
	for metadata, want := range map[string]bool{MetadataAuto: false, MetadataEarly: true, MetadataKernel: false} {
		c := &Controller{host: host, config: Config{Metadata: metadata}}
		if got := c.wantsEarly(); got != want {
			t.Errorf("metadata: %s: %t, want %t", metadata, got, want)
		}
	}
}

func TestControlDoesNotWaitForADiskThatIsFull(t *testing.T) {
	f := newFakeWriteback()
	f.hold = make(chan struct{})
	defer close(f.hold)
	runWithWriteback(t, f, twoEqual, nil, 20, func(step int) {
		if step == 1 {
			<-f.began
		}
	})
	if f.count() != 1 {
		t.Errorf("started %d times while the first still waits; want 1", f.count())
	}
}

func TestWritebackThatFailsIsReportedOnce(t *testing.T) {
	f := newFakeWriteback()
	f.err = errors.New("no such node")
	var log strings.Builder
	var mu sync.Mutex
	runWithWriteback(t, f, twoEqual, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
	}, 6, func(step int) {
		if step > 0 {
			<-f.began
		}
	})
	mu.Lock()
	defer mu.Unlock()
	if count := strings.Count(log.String(), "no such node"); count != 1 {
		t.Errorf("reported %d times: %s", count, log.String())
	}
}

type lockedWriter struct {
	mu  *sync.Mutex
	out *strings.Builder
}

func (w lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(b)
}

// costDisk is a disk under io.cost. Journal and metadata pass it. A commit comes every
// 5 s, and makes as much metadata dirty as it logs.
type costDisk struct {
	bytesPerSecond, metadataPerSecond float64
	// writeSeconds is the time between two writebacks.
	writeSeconds                  float64
	now                           float64
	toCommit, dirty, queuedHidden float64
}

// run passes a step and returns what B's hidden I/O and the charged I/O came to.
func (d *costDisk) run(step float64) (journal, writeback, charged float64) {
	before := d.now
	d.now += step
	every := func(seconds float64) bool { return math.Floor(d.now/seconds) > math.Floor(before/seconds) }
	d.toCommit += d.metadataPerSecond * step
	if every(d.writeSeconds) {
		d.queuedHidden, d.dirty = d.queuedHidden+d.dirty, 0
	}
	if every(5) {
		journal, d.dirty, d.toCommit = d.toCommit, d.dirty+d.toCommit, 0
	}
	left := d.bytesPerSecond*step - journal
	writeback = math.Min(d.queuedHidden, 0.85*left)
	d.queuedHidden -= writeback
	return journal, writeback, left - writeback
}

func TestEarlyWritebackHoldsTheSharesInEachInterval(t *testing.T) {
	// The step of control, and the age at which the kernel writes.
	worst := map[float64]float64{}
	for _, writeSeconds := range []float64{0.5, 30} {
		disk := &costDisk{bytesPerSecond: 16 << 20, metadataPerSecond: 1.75e6, writeSeconds: writeSeconds}
		r := law.Range{Min: 1, Max: 10_000}
		feedback, weights := law.NewFeedback(r), []float64{500, 500}
		var a, b float64
		const step, interval = 0.5, 5.0
		for n := range int(120 / step) {
			journal, writeback, charged := disk.run(step)
			ofA := charged * weights[0] / (weights[0] + weights[1])
			a, b = a+ofA, b+charged-ofA+journal+writeback
			copy(weights, feedback.Next(step, []law.Observation{
				{ID: "a", Ideal: 500, Weight: weights[0], OtherBytes: ofA},
				{ID: "b", Ideal: 500, Weight: weights[1], OtherBytes: charged - ofA, JournalBytes: journal + writeback, WritebackBytes: writeback},
			}))
			if math.Mod(float64(n+1)*step, interval) == 0 {
				if n > int(3*interval/step) {
					worst[writeSeconds] = math.Max(worst[writeSeconds], math.Abs(b/(a+b)-0.5))
				}
				a, b = 0, 0
			}
		}
	}
	t.Logf("worst interval: %.1f points off if metadata is written at each step, %.1f if every 30 s", 100*worst[0.5], 100*worst[30])
	if worst[0.5] > 0.1 || worst[30] < 2*worst[0.5] {
		t.Errorf("worst interval: %.3f off if metadata is written at each step, %.3f if every 30 s", worst[0.5], worst[30])
	}
}
