package causes

import (
	"encoding/json"
	"testing"

	"github.com/daybook-project/daybook/internal/blame"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/vm/vmtest"
)

func TestInjectedCausesAreFound(t *testing.T) {
	lab := fixturetest.New(t)
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			// Another program can have taken the processors, so that the waiter
			// waited for them: one round is enough in which the cause has most
			// of the time. The benchmark has tighter bounds.
			found := false
			for tries := 0; !found && tries < 5; tries++ {
				outcome, err := Run(t.Context(), lab, c, Quick.Rounds)
				if err != nil {
					t.Fatal(err)
				}
				found = checkOutcome(t, outcome)
			}
			if !found {
				t.Error("in no round without lost waits most of the time is blamed on the cause")
			}
		})
	}
}

// checkOutcome checks what holds on a busy host, too, and reports whether the case's cause
// has most of a round's time.
func checkOutcome(t *testing.T, o Outcome) (found bool) {
	t.Helper()
	if o.Lost > 0 {
		t.Logf("%d waits were lost", o.Lost)
		return false
	}
	for _, r := range o.Rounds {
		share := r.Share(o.Case.Cause, o.Case.Culprit)
		t.Logf("%d calls, measured %.4f s; blame: %d calls, %.4f s; %.1f %% right; %+v",
			r.Calls, r.MeasuredSeconds, r.BlamedCalls, r.BlamedSeconds, 100*share, r.Parts)
		if o.Case.Waiter != Mkdir && r.BlamedCalls != uint64(r.Calls) {
			t.Errorf("%d calls, blame has %d", r.Calls, r.BlamedCalls)
		}
		if r.BlamedSeconds > r.MeasuredSeconds {
			t.Errorf("the calls took %.4f s, by blame %.4f s", r.MeasuredSeconds, r.BlamedSeconds)
		}
		found = found || share > 0.5 && (o.Case.Waiter == Mkdir || r.BlamedSeconds > 0.5*r.MeasuredSeconds)
	}
	return found
}

// checkOperations compares blame with the times of the caller: calls, sums, and
// medians within the width of a bucket. least is the least time of a call in which it
// waits for the disk: a caller also waits for a processor, outside of the sync. What the
// kernel does before and after the sync itself is not in blame's time: a write copies its
// data, an msync looks for changed pages.
func checkOperations(t *testing.T, rounds map[blame.Operation]Round, calls int, least func(measured float64) float64) {
	t.Helper()
	for operation, r := range rounds {
		t.Logf("%s: measured %.4f s, median %.6f s; blame: %.4f s, %.6f s", operation, r.MeasuredSeconds, r.MeasuredMedian, r.BlamedSeconds, r.BlamedMedian)
		if r.BlamedCalls != uint64(calls) || r.Calls != calls {
			t.Errorf("%s: %d calls, blame has %d; want %d", operation, r.Calls, r.BlamedCalls, calls)
		}
		if r.BlamedSeconds > r.MeasuredSeconds || r.BlamedSeconds < float64(calls)*least(r.MeasuredSeconds/float64(calls)) {
			t.Errorf("%s took %.4f s, by blame %.4f s", operation, r.MeasuredSeconds, r.BlamedSeconds)
		}
		if r.BlamedMedian < least(r.MeasuredMedian)/1.13 || r.BlamedMedian > 1.13*r.MeasuredMedian {
			t.Errorf("%s has a median of %.6f s, by blame %.6f s", operation, r.MeasuredMedian, r.BlamedMedian)
		}
	}
	if len(rounds) != len(operations) {
		t.Errorf("%d operations; want %d", len(rounds), len(operations))
	}
}

func TestEachOperationIsMeasuredAsTheCallerDoes(t *testing.T) {
	const calls = 21 // an odd number has a median call
	rounds, err := RunOperations(t.Context(), fixturetest.New(t), operationsDisk, calls)
	if err != nil {
		t.Fatal(err)
	}
	checkOperations(t, rounds, calls, func(float64) float64 { return operationsDisk.Parameters.FlushSeconds })
}

// A guest has cgroup v2, other kernels, and ext4 and jbd2 as modules. QEMU does not make a
// request of a limited disk wait, but the one after it. On a virtio disk it joins adjacent
// writes to one, and Linux 7.2 sends 4 MiB at once: then the neighbour's data ends at once,
// the commit's log waits in its place, and blame rightly says "log". On an NVMe disk no
// request is larger than 512 KiB, and none are joined.
var guestConfig = vmtest.Config{Disks: []string{"512M,bps=16M,nvme"}, Modules: "ext4", Give: []string{"mke2fs"}, OneKernel: true}

func TestGuestWaitsAreMeasuredAndDivided(t *testing.T) {
	vmtest.InGuest(t, guestConfig, func(t *testing.T) {
		lab := fixturetest.New(t)
		options := fixture.Options{Given: &fixture.GivenDisk{Node: vmtest.Device(t, "disk0"), Divider: fixture.Undivided}, JournalBytes: 16 << 20, Mount: DataMount}
		const calls = 7
		rounds, err := RunOperations(t.Context(), lab, options, calls)
		if err != nil {
			t.Fatal(err)
		}
		// System calls of an emulated processor are slow.
		checkOperations(t, rounds, calls, func(measured float64) float64 { return 0.75 * measured })
		c := Cases()[0]
		c.Fixture, c.Bytes = options, 8<<20
		outcome, err := Run(t.Context(), lab, c, Quick.Rounds)
		if err != nil {
			t.Fatal(err)
		}
		if len(outcome.Missing) != 0 {
			t.Errorf("this kernel lacks %q", outcome.Missing)
		}
		var shares []float64
		for _, r := range outcome.Rounds {
			t.Logf("measured %.4f s; blame %.4f s: %+v", r.MeasuredSeconds, r.BlamedSeconds, r.Parts)
			shares = append(shares, r.Share(blame.OrderedData, Neighbour))
		}
		if share := statistics.Median(shares); share < 0.7 {
			t.Errorf("%.1f %% of the time is the neighbour's data's", 100*share)
		}
	})
}

// The flush of the disk has no culprit; data and locks have one, even if blame does
// not know whose they are.
func TestEachCulpritHasAName(t *testing.T) {
	s := stage{names: map[uint64]string{7: Waiter}}
	for _, test := range []struct {
		cgroup uint64
		cause  blame.Phase
		want   string
	}{
		{7, blame.Log, Waiter}, {8, blame.Log, Others}, {blame.Nobody, blame.Flush, None}, {blame.Nobody, blame.Rest, None},
		{blame.Nobody, blame.OrderedData, Unknown}, {blame.Nobody, blame.Lock, Unknown},
	} {
		if got := s.culprit(blame.Culprit{Cgroup: test.cgroup, Cause: test.cause}); got != test.want {
			t.Errorf("%v of %d is called %q; want %q", test.cause, test.cgroup, got, test.want)
		}
	}
}

func TestAnOutcomeIsReadWithItsCase(t *testing.T) {
	text, err := json.Marshal(Outcome{Name: Cases()[1].Name, Rounds: []Round{{Calls: 1, MeasuredSeconds: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	var o Outcome
	if err := json.Unmarshal(text, &o); err != nil || o.Case.Waiter != Cases()[1].Waiter || len(o.Rounds) != 1 {
		t.Errorf("%v: %+v", err, o)
	}
	if err := json.Unmarshal([]byte(`{"name": "another"}`), &o); err == nil {
		t.Error("an unknown case: no error")
	}
}
