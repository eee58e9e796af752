package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgroup"
)

func TestRealWeightsAreWrittenAndPutBack(t *testing.T) { weightsAreWrittenAndPutBack(t, newTestbed(t)) }

func weightsAreWrittenAndPutBack(t *testing.T, b *testbed) {
	before := b.settings(t)
	options := b.options(t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	intervals := 0
	options.OpenSource = b.restless()
	options.OnInterval = func(d Decision) {
		if intervals++; intervals < 20 {
			return
		}
		for _, m := range d.Weights {
			setting, err := b.host.Weights.Get(m.Cgroup)
			if err != nil || setting.Effective() != m.After {
				t.Errorf("%s: %+v, %v; decided %d", m.Cgroup, setting, err, m.After)
			}
		}
		if b.settings(t) == before {
			t.Error("nothing was changed")
		}
		if limit, err := b.host.Limits.Get(b.cgroups[0]); limit.Write >= writeLimit || limit.Write < writeLimit/10 {
			t.Errorf("the limit is %+v, %v; want less than %d and a tenth of it at least", limit, err, writeLimit)
		}
		for name, want := range b.tunables {
			if value, err := b.host.Tunables.Get(name); value != fmt.Sprint(want) {
				t.Errorf("%s is %s, %v; want %d", name, value, err, want)
			}
		}
		cancel()
	}
	if err := Run(ctx, options); err != nil {
		t.Fatal(err)
	}
	if intervals < 20 {
		t.Errorf("%d intervals", intervals)
	}
	if after := b.settings(t); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}

func TestKillAtRandomMomentsLeavesEveryWeightRestorable(t *testing.T) {
	killsLeaveEverySettingRestorable(t, newTestbed(t), 50)
}

// killsLeaveEverySettingRestorable kills processes, of which about half set limits
// (beChild), a third of them
// after their tenth interval, the others at moments between the start and twice the time
// that a process takes to its tenth interval.
func killsLeaveEverySettingRestorable(t *testing.T, b *testbed, kills int) {
	stateDir := t.TempDir()
	before := b.settings(t)
	begin := time.Now()
	first := b.startChild(t, stateDir)
	first.waitUntilRunning(t)
	span := 2 * time.Since(begin)
	first.kill(t)
	if _, _, err := b.restore(stateDir); err != nil {
		t.Fatal(err)
	}
	changed, restored, unrestored := 0, 0, 0
	for n := range kills {
		child := b.startChild(t, stateDir)
		if n%3 == 0 { // on a busy host the others may be killed too early to change anything
			child.waitUntilRunning(t)
		} else {
			time.Sleep(rand.N(span))
		}
		child.kill(t)
		if b.settings(t) != before {
			changed++
		}
		if n%2 == 0 {
			_, ok, err := b.restore(stateDir)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				restored++
			}
		} else {
			// A new start restores first; it ends at once.
			options := b.options(stateDir)
			options.OpenSource = func([]string, time.Duration) (account.Source, error) {
				unrestored++
				return nil, io.ErrUnexpectedEOF
			}
			if err := Run(context.Background(), options); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatal(err)
			}
		}
		if after := b.settings(t); after != before {
			t.Fatalf("kill %d: before\n%safter\n%s", n, before, after)
		}
	}
	t.Logf("after %d of %d kills settings were changed; %d restores, %d new starts", changed, kills, restored, unrestored)
	if changed < kills/5 {
		t.Errorf("only %d of %d kills met changed settings: the test shows little", changed, kills)
	}
	if _, ok, err := b.restore(stateDir); ok || err != nil {
		t.Errorf("a further restore: %v, %v", ok, err)
	}
}

func TestTwoDaemonsOnOneDeviceAreRefused(t *testing.T) { twoDaemonsAreRefused(t, newTestbed(t)) }

func twoDaemonsAreRefused(t *testing.T, b *testbed) {
	stateDir := t.TempDir()
	child := b.startChild(t, stateDir)
	child.waitUntilRunning(t)
	for _, dir := range []string{stateDir, t.TempDir()} {
		options := b.options(dir)
		options.OpenSource = func([]string, time.Duration) (account.Source, error) { return nil, io.ErrUnexpectedEOF }
		var busy *BusyError
		if err := Run(context.Background(), options); !errors.As(err, &busy) || busy.PID != child.cmd.Process.Pid {
			t.Errorf("a second daemon: %v, want busy with pid %d", err, child.cmd.Process.Pid)
		}
		if _, _, err := b.restore(dir); !errors.As(err, &busy) {
			t.Errorf("restore beside a daemon: %v", err)
		}
	}
	child.kill(t)
	if _, ok, err := b.restore(stateDir); !ok || err != nil {
		t.Errorf("after the daemon's death: %v, %v", ok, err)
	}
}

func TestARealCgroupThatVanishesIsSurvived(t *testing.T) { vanishingIsSurvived(t, newTestbed(t)) }

func vanishingIsSurvived(t *testing.T, b *testbed) {
	before := b.settings(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	options := b.options(t.TempDir())
	options.OpenSource = b.restless()
	gone := b.parent + "/gone"
	intervals := 0
	options.OnInterval = func(d Decision) {
		switch intervals++; {
		case intervals == 40:
			cancel()
		case intervals%4 == 1:
			if err := os.Mkdir(b.dir(gone), 0o755); err != nil {
				t.Error(err)
			}
		case intervals%4 == 3:
			if err := os.Remove(b.dir(gone)); err != nil {
				t.Error(err)
			}
		case intervals%4 == 2:
			if len(d.Weights) != 4 {
				t.Errorf("interval %d: %d cgroups steered, want the new one too", intervals, len(d.Weights))
			}
		}
	}
	if err := Run(ctx, options); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(b.dir(gone))
	if after := b.settings(t); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}

func TestAFullDiskStopsItBeforeTheFirstWrite(t *testing.T) {
	b := newTestbed(t)
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("%s%d.full", testPrefix, os.Getpid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := unix.Mount("daybook", dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, 0) })
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	before := b.settings(t)
	options := b.options(dir)
	options.OpenSource = func([]string, time.Duration) (account.Source, error) {
		t.Error("it went on to measure")
		return nil, io.ErrUnexpectedEOF
	}
	err := Run(context.Background(), options)
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v, want no space", err)
	}
	t.Log(err)
	if after := b.settings(t); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
	// With space for the lock but not for the state.
	if err := os.Truncate(filepath.Join(dir, "full"), 0); err != nil {
		t.Fatal(err)
	}
	if err := Run(context.Background(), options); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v, want no space", err)
	}
	if after := b.settings(t); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}

func TestRestoreWorksAfterTheSchedulerWasSwitched(t *testing.T) {
	restoreWorksWithoutWeights(t, newTestbed(t))
}

func restoreWorksWithoutWeights(t *testing.T, b *testbed) {
	stateDir := t.TempDir()
	child := b.startChild(t, stateDir)
	child.waitUntilRunning(t)
	child.kill(t)
	if err := b.disable(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenHost(b.tree, b.disk); !errors.Is(err, cgroup.ErrNoWeights) || !strings.Contains(err.Error(), b.remedy) {
		t.Errorf("without weights: %v, want the command that corrects it", err)
	}
	outcome, ok, err := b.restore(stateDir)
	if err != nil || !ok || len(outcome.Restored) != 3 {
		t.Errorf("%+v %v %v", outcome, ok, err)
	}
	if setting, err := b.host.Weights.Get(b.cgroups[1]); err != nil || setting != (Setting{Default: 250}) {
		t.Errorf("restored to %+v, %v", setting, err)
	}
}

func TestARealWeightThatAnotherProgramChoseIsKept(t *testing.T) {
	chosenWeightsAreKept(t, newTestbed(t))
}

// chosenWeightsAreKept lets another program choose weights while cgroups are
// busy, while all of them are idle, and after the daemon was killed.
func chosenWeightsAreKept(t *testing.T, b *testbed) {
	original := make([]Setting, len(b.cgroups))
	for n, cgroup := range b.cgroups {
		var err error
		if original[n], err = b.host.Weights.Get(cgroup); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, want ...Setting) {
		t.Helper()
		for n, cgroup := range b.cgroups {
			if got, err := b.host.Weights.Get(cgroup); err != nil || got != want[n] {
				t.Errorf("%s %s has %+v, %v; want %+v", when, cgroup, got, err, want[n])
			}
		}
	}
	file, deviceFile := b.host.Weights.File(), b.host.Weights.File()
	if b.tree.Version() == cgroup.V1 {
		deviceFile += "_device"
	}
	for when, busy := range map[string]bool{"busy": true, "idle": false} {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		options := b.options(t.TempDir())
		options.OpenSource = b.restless()
		if !busy {
			options.OpenSource = func([]string, time.Duration) (account.Source, error) {
				return &restlessSource{device: b.disk.Name, pause: time.Millisecond}, nil
			}
		}
		intervals := 0
		options.OnInterval = func(d Decision) {
			switch intervals++; intervals {
			case 10:
				b.echo(t, b.cgroups[1], file, "333")
				b.echo(t, b.cgroups[2], deviceFile, b.disk.Dev.String()+" 88")
			case 15:
				if d.Weights[1].Ideal != 333 || d.Weights[2].Ideal != 88 {
					t.Errorf("%s: the ideals are %+v; want 333 and 88", when, d.Weights)
				}
				cancel()
			}
		}
		if err := Run(ctx, options); err != nil {
			t.Fatal(err)
		}
		check(when, original[0], Setting{Default: 333}, Setting{Default: original[2].Default, Device: 88})
		for n, cgroup := range b.cgroups {
			if err := b.host.Weights.Restore(cgroup, original[n]); err != nil {
				t.Fatal(err)
			}
		}
	}
	stateDir := t.TempDir()
	child := b.startChild(t, stateDir)
	child.waitUntilRunning(t)
	child.kill(t)
	b.echo(t, b.cgroups[1], file, "333")
	outcome, ok, err := b.restore(stateDir)
	if err != nil || !ok || !slices.Equal(outcome.Kept, b.cgroups[1:2]) || len(outcome.Restored) != 2 {
		t.Errorf("restore: %+v %v %v; want the second cgroup kept, the others restored", outcome, ok, err)
	}
	check("killed:", original[0], Setting{Default: 333}, original[2])
}
