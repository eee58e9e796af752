package control

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
)

func TestRealControlFollowsTheSchedulerAndLateCgroups(t *testing.T) {
	controlFollowsTheScheduler(t, newTestbed(t))
}

// controlFollowsTheScheduler makes cgroups during control, one of them while the
// state cannot be saved. An operator chooses a scheduler without weights, and then
// BFQ again.
func controlFollowsTheScheduler(t *testing.T, b *testbed) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	options := b.options(t.TempDir())
	options.Config.Actuator = ActuatorAuto
	options.Config.CorrectLimits = false // the operator's limit does not change
	var log bytes.Buffer
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	disk, err := OpenDisk(b.tree, b.disk, ActuatorAuto)
	if err != nil {
		t.Fatal(err)
	}
	if scheduler, err := b.disk.Scheduler(); err != nil || disk.Host.Scheduler != scheduler.Current {
		t.Errorf("the disk was opened with the scheduler %q; it has %+v, %v", disk.Host.Scheduler, scheduler, err)
	}
	options.Disks = []Disk{disk}
	source := &restlessSource{device: b.disk.Name, cgroups: slices.Clone(b.cgroups), pause: time.Millisecond, random: rand.New(rand.NewPCG(1, 2))}
	options.OpenSource = func([]string, time.Duration) (account.Source, error) { return source, nil }
	late, later := b.parent+"/late", b.parent+"/later"
	blocker := StatePath(options.Config.StateDir, b.disk.Name) + ".new"
	kept := func(cgroup string) bool {
		state, err := LoadState(options.Config.StateDir, b.disk.Name)
		if err != nil {
			t.Error(err)
			return false
		}
		return slices.ContainsFunc(state.Cgroups, func(c CgroupState) bool { return c.Cgroup == cgroup })
	}
	limits := func() (all []Limits) {
		for _, cgroup := range append([]string{late, later}, b.cgroups...) {
			l, err := disk.Host.Limits.Get(cgroup)
			if err != nil {
				t.Error(err)
			}
			all = append(all, l)
		}
		return all
	}
	limited := false
	appear := func(cgroup string) {
		b.mkdir(t, cgroup)
		source.cgroups = append(source.cgroups, cgroup)
	}
	choose := func(scheduler string) {
		if err := b.disk.SetScheduler(scheduler); err != nil {
			t.Error(err)
		}
	}
	original := make([]Limits, 2, 5) // late and later have none
	for _, cgroup := range b.cgroups {
		l, err := disk.Host.Limits.Get(cgroup)
		if err != nil {
			t.Fatal(err)
		}
		original = append(original, l)
	}
	steps := map[int]func(){
		10: func() { appear(late) },
		15: func() {
			if !kept(late) {
				t.Error("a cgroup that came late is not in the state")
			}
			if err := os.Mkdir(blocker, 0o755); err != nil {
				t.Error(err)
			}
			appear(later)
		},
		20: func() {
			if got, err := b.host.Weights.Get(later); err != nil || got.Device != 0 || kept(later) {
				t.Errorf("a cgroup that cannot be recorded has the weight %+v, %v", got, err)
			}
			if err := os.Remove(blocker); err != nil {
				t.Error(err)
			}
		},
		25: func() {
			if !kept(later) {
				t.Error("the cgroup is not in the state, which can be saved again")
			}
			choose("none")
		},
		45: func() {
			if !limited || !strings.Contains(log.String(), "changed from bfq to none") {
				t.Error("control did not go on by limits")
			}
			choose(blockdev.BFQ)
		},
		46: func() { // before a verdict on ignored weights, because the samples are random
			if got := limits(); !slices.Equal(got, original) {
				t.Errorf("by weights again, with limits %+v; want %+v", got, original)
			}
			if got, err := b.host.Weights.Get(b.cgroups[0]); err != nil || got.Device == 0 {
				t.Errorf("no weight is set: %+v, %v", got, err)
			}
		},
		50: cancel,
	}
	n := 0
	options.OnInterval = func(Decision) {
		n++
		limited = limited || n > 25 && n < 45 && !slices.Equal(limits(), original)
		if step := steps[n]; step != nil {
			step()
		}
	}
	if err := Run(ctx, options); err != nil {
		t.Fatal(err)
	}
	if n < 50 {
		t.Fatalf("only %d intervals", n)
	}
	if got := limits(); !slices.Equal(got, original) {
		t.Errorf("in the end the limits are %+v; want %+v", got, original)
	}
	// The third cgroup's weight for the disk is gone with BFQ.
	for cgroup, want := range map[string]uint64{b.cgroups[0]: 100, b.cgroups[1]: 250, b.cgroups[2]: 100, late: 100, later: 100} {
		if got, err := b.host.Weights.Get(cgroup); err != nil || got != (Setting{Default: want}) {
			t.Errorf("in the end %s has %+v, %v; want %d", cgroup, got, err, want)
		}
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=ERROR") && !strings.Contains(line, "cannot keep the original settings") {
			t.Error(line)
		}
	}
}
