package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/adopt"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/blockdev/blockdevtest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

// While the container runtime does not answer, pods have the names and the weights that it
// reported last.
func TestARestartOfTheRuntimeChangesNoPlacementAndNoWeight(t *testing.T) {
	r := newRig(t, false)
	d := r.disk("a")
	needs.That(t, blockdevtest.SetScheduler(t, d.Disk, blockdev.BFQ) == nil, "BFQ")
	r.config.Namespaces, r.config.Weights = []string{"team"}, map[string]uint64{Burstable: 50}
	p := r.start("db", "burstable", d, map[string]string{Annotation: "300"})
	a, stop := r.agent()
	r.awaitLong("the agent places the journal", func() bool { return p.has(d) })
	r.awaitLong("the agent reports it", func() bool { return len(a.Report().Volumes) == 1 })
	record := filepath.Join(r.config.StateDir, "adopt", d.Name+".json")
	before, err := os.Stat(record)
	if err != nil {
		t.Fatal(err)
	}
	weights, err := r.tree.Weights(d.Dev, blockdev.BFQ)
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		if now, err := os.Stat(record); err != nil || !os.SameFile(before, now) {
			t.Errorf("%s: the record was written again, %v", when, err)
		}
		if now, err := weights.Get(p.cgroup); err != nil || now.Effective() != 300 {
			t.Errorf("%s: the weight is %+v, %v; want 300", when, now, err)
		}
		if v := a.Report().Volumes; len(v) != 1 || v[0].Placement.For() != "team/db volume pvc-db" || !v[0].Status.Placed {
			t.Errorf("%s: %+v", when, v)
		}
	}
	check("before")
	rounds := func() {
		begin := a.Report().Rounds
		r.awaitLong("rounds go on", func() bool { return a.Report().Rounds >= begin+5 })
	}
	r.cri.Kill()
	r.awaitLong("the agent reports that the runtime does not answer", func() bool {
		return strings.Contains(strings.Join(a.Report().Problems, ""), "cannot ask the container runtime")
	})
	rounds()
	check("without the runtime")
	r.cri.Start()
	r.awaitLong("the runtime answers", func() bool { return len(a.Report().Problems) == 0 })
	rounds()
	check("with the runtime again")
	p.stop()
	p.remove(podPatience)
	r.awaitLong("the agent releases the journal", func() bool { return d.at() == "/" })
	stop()
	r.wantReleased(d)
}

// An ext4 without a journal has nothing to place. That is no failure, and it is looked at again
// from time to time only.
func TestAVolumeWithoutAJournalIsNoFailureAndIsSeldomLookedAt(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{Make: ext4.MakeOptions{NoJournal: true}})
	config := DefaultConfig()
	config.KubeletDir, config.StateDir, config.CRISocket = t.TempDir(), t.TempDir(), NoCRI
	a, err := New(config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	clock := &jumpingClock{}
	a.now = clock.now
	mounts, err := blockdev.MountsOf(fs.Disk.Dev)
	if err != nil || len(mounts) != 1 {
		t.Fatalf("%+v, %v", mounts, err)
	}
	look := func() time.Time {
		t.Helper()
		if f, err := a.filesystem(Volume{PodUID: uidA, Name: "pv", Mount: mounts[0]}); !errors.Is(err, adopt.ErrUnsupported) || !errors.Is(err, ext4.ErrNoJournal) {
			t.Errorf("%+v, %v", f, err)
		}
		return a.unusable[fs.Disk.Dev].found
	}
	first := look()
	if again := look(); !again.Equal(first) {
		t.Error("it is looked at again at once")
	}
	clock.jump(listPause)
	if again := look(); again.Equal(first) {
		t.Error("it is not looked at again")
	}
	a.forget(nil)
	if len(a.unusable) > 0 {
		t.Errorf("%+v stay although nothing is mounted", a.unusable)
	}
}

// The same, of a pod.
func TestAPodWhoseVolumeHasNoJournalIsReported(t *testing.T) {
	r := newRig(t, false)
	d := r.disk("a")
	if err := ext4.Make(t.Context(), d.Node(), ext4.MakeOptions{NoJournal: true}); err != nil {
		t.Fatal(err)
	}
	p := r.start("db", "burstable", d, nil)
	a, stop := r.agent()
	r.awaitLong("the agent reports it", func() bool {
		return strings.Contains(strings.Join(a.Report().Problems, ""), "team/db volume pvc-db: cannot adopt "+p.mount)
	})
	begin := a.Report()
	r.awaitLong("rounds go on", func() bool { return a.Report().Rounds >= begin.Rounds+5 })
	if now := a.Report(); now.Failures != begin.Failures || len(now.Problems) != 1 || len(now.Volumes) != 0 {
		t.Errorf("%+v", now)
	}
	stop()
	p.stop()
	p.remove(podPatience)
}

// What a killed agent has left, and what could not be undone at the start, is undone later.
func TestWhatCouldNotBeUndoneAtTheStartIsTriedAgain(t *testing.T) {
	r := newRig(t, false)
	d := r.disk("a")
	dir := filepath.Join(r.config.StateDir, "adopt")
	file := filepath.Join(dir, d.Name+".json")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	clock := &jumpingClock{}
	a, stop := r.agentWith(func(a *Agent) { a.now = clock.now })
	reported := func() bool { return strings.Contains(strings.Join(a.Report().Problems, ""), file) }
	r.awaitLong("the agent reports the record that it cannot read", reported)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	clock.jump(listPause)
	r.awaitLong("the agent reports it no longer", func() bool { return a.Report().Rounds > 0 && !reported() })
	stop()
}
