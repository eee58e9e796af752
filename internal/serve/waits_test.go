package serve

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blame"
)

// waitsSample has a waiter with calls on both sides of a bound.
func waitsSample() account.Sample {
	sample := testSample(alpha())
	sample.WaitsLost, sample.WaitEventsMissed = 3, 5
	sample.Waiters = []account.Waiter{{
		Cgroup: "/ca", Name: "alpha", Device: "loop0p1", Operation: "fsync", Calls: 7, WaitSeconds: 1.5,
		Culprits:  []account.Culprit{{Cgroup: "/cb", Name: "beta", Seconds: 1, Cause: "log"}, {Seconds: 0.5, Cause: "flush"}},
		Histogram: []account.WaitBucket{{UpperSeconds: 0.000524288, Calls: 4}, {UpperSeconds: 0.000589824, Calls: 2}, {UpperSeconds: 100, Calls: 1}},
	}}
	return sample
}

func TestWaitsAddUp(t *testing.T) {
	m := NewMetrics(10)
	m.Observe(waitsSample())
	m.Observe(waitsSample())
	m.Observe(testSample(alpha())) // counters stay
	got := values(t, m)
	const w = "{cgroup=/ca,container=alpha,device=loop0p1,operation=fsync}"
	for name, value := range map[string]float64{
		"daybook_wait_duration_seconds_count" + w: 14, "daybook_wait_duration_seconds_sum" + w: 3,
		"daybook_wait_duration_seconds_bucket" + w + "<=0.000131": 0, "daybook_wait_duration_seconds_bucket" + w + "<=0.000524": 8,
		"daybook_wait_duration_seconds_bucket" + w + "<=0.002097": 12, "daybook_wait_duration_seconds_bucket" + w + "<=34.359738": 12,
		"daybook_blamed_seconds_total{cause=log,cgroup=/ca,container=alpha,culprit=beta,culprit_cgroup=/cb,device=loop0p1}": 2,
		"daybook_blamed_seconds_total{cause=flush,cgroup=/ca,container=alpha,culprit=,culprit_cgroup=,device=loop0p1}":      1,
		"daybook_lost_waits_total{}": 6, "daybook_missed_wait_events_total{}": 10,
	} {
		if v, there := got[name]; !there || v != value {
			t.Errorf("%s is %g (there: %v), want %g", name, v, there, value)
		}
	}
	if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	for range int(expireSeconds/5) + 2 {
		m.Observe(testSample(alpha()))
	}
	for name := range values(t, m) {
		if strings.Contains(name, "wait_duration") || strings.Contains(name, "blamed") {
			t.Errorf("%s is still there", name)
		}
	}
}

// A bound between the ends of a sample's bucket would count its calls on the wrong
// side.
func TestBoundsAreThoseOfBuckets(t *testing.T) {
	for _, bound := range waitBounds {
		found := false
		for b := range blame.Bucket(300) {
			found = found || math.Abs(b.UpperSeconds()-bound) < 1e-12
		}
		if !found {
			t.Errorf("no bucket ends at %g s", bound)
		}
	}
	if len(waitBounds) != len(waitSeries{}.buckets) {
		t.Errorf("%d bounds", len(waitBounds))
	}
}

func TestWaitersAndCulpritsBeyondTheirBoundsAreAddedUp(t *testing.T) {
	m := NewMetrics(3)
	sample := testSample()
	for i := range 10 {
		sample.Waiters = append(sample.Waiters, account.Waiter{
			Cgroup: fmt.Sprintf("/c%d", i), Name: "x", Device: "loop0", Operation: "fsync", Calls: 1, WaitSeconds: 1,
			Culprits: []account.Culprit{{Cgroup: "/y", Name: "y", Seconds: 1, Cause: "log"}},
		})
	}
	m.Observe(sample)
	got := values(t, m)
	if v := got["daybook_wait_duration_seconds_sum{cgroup=(others),container=(others),device=loop0,operation=fsync}"]; v != 7 {
		t.Errorf("the others have %g s; want 7", v)
	}
	m.waits.blamed = map[blamedKey]*blamedSeries{}
	for i := range maxBlamed + 10 {
		m.waits.blame(blamedKey{cgroup: "/ca", culprit: fmt.Sprint(i), cause: "log"}, 1, 0)
	}
	if rest := m.waits.blamed[blamedKey{cgroup: "/ca", culpritCgroup: mergedName, culprit: mergedName, cause: "log"}]; len(m.waits.blamed) != maxBlamed+1 || rest == nil || rest.seconds != 10 {
		t.Errorf("%d series, the rest has %+v", len(m.waits.blamed), rest)
	}
}
