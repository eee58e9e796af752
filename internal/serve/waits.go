package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/daybook-project/daybook/internal/account"
)

// maxBlamed limits the series of pairs of a waiter and a culprit. Further culprits
// of a waiter are summed in one, so that the totals stay correct.
const maxBlamed = 10_000

var (
	waitLabels   = []string{"device", "cgroup", "container", "operation"}
	blamedLabels = []string{"device", "cgroup", "container", "culprit_cgroup", "culprit", "cause"}

	waitDesc = desc("daybook_wait_duration_seconds",
		"How long calls of the container waited for a journal, by kind of call; only with --waits.", waitLabels)
	blamedDesc = desc("daybook_blamed_seconds_total",
		"Time that calls of the container waited for a journal, by who caused it and how; only with --waits.", blamedLabels)
	waitsLostDesc = desc("daybook_lost_waits_total",
		"Waits for which the kernel side had no space; they are in no series, or in part.", nil)
	waitEventsMissedDesc = desc("daybook_missed_wait_events_total",
		"Events for which the kernel ran no program that measures waits; a wait may be missing, or be in another phase.", nil)
)

// waitBounds are the upper bounds of the histogram, in seconds: each second power of
// two in nanoseconds from 131 us to 34 s, so that each bucket of a sample is in one.
var waitBounds = func() []float64 {
	var bounds []float64
	for power := 17; power <= 35; power += 2 {
		bounds = append(bounds, float64(uint64(1)<<power)/1e9)
	}
	return bounds
}()

type waitKey struct{ device, cgroup, container, operation string }

type waitSeries struct {
	// buckets counts the calls up to each bound.
	buckets [10]uint64
	calls   uint64
	seconds float64
	seen    float64
}

type blamedKey struct{ device, cgroup, container, culpritCgroup, culprit, cause string }

type blamedSeries struct{ seconds, seen float64 }

// waits are the series of who waits for a journal. Metrics guards them.
type waits struct {
	calls  map[waitKey]*waitSeries
	blamed map[blamedKey]*blamedSeries
	lost   uint64
	missed uint64
}

func newWaits() waits {
	return waits{calls: map[waitKey]*waitSeries{}, blamed: map[blamedKey]*blamedSeries{}}
}

// observe adds the waiters of a sample; max is the greatest number of waiters with
// series of their own.
func (w *waits) observe(s account.Sample, running float64, max int) {
	w.lost += s.WaitsLost
	w.missed += s.WaitEventsMissed
	for _, waiter := range s.Waiters {
		key := waitKey{label(waiter.Device), label(waiter.Cgroup), label(waiter.Name), label(waiter.Operation)}
		series := w.calls[key]
		if series == nil && len(w.calls) >= max {
			key.cgroup, key.container = mergedName, mergedName
			series = w.calls[key]
		}
		if series == nil {
			series = &waitSeries{}
			w.calls[key] = series
		}
		for _, bucket := range waiter.Histogram {
			for i, bound := range waitBounds {
				if bucket.UpperSeconds <= bound*(1+1e-9) {
					series.buckets[i] += bucket.Calls
				}
			}
		}
		series.calls += waiter.Calls
		series.seconds += waiter.WaitSeconds
		series.seen = running
		for _, c := range waiter.Culprits {
			w.blame(blamedKey{key.device, key.cgroup, key.container, label(c.Cgroup), label(c.Name), label(c.Cause)}, c.Seconds, running)
		}
	}
	for key, series := range w.calls {
		if running-series.seen > expireSeconds {
			delete(w.calls, key)
		}
	}
	for key, series := range w.blamed {
		if running-series.seen > expireSeconds {
			delete(w.blamed, key)
		}
	}
}

func (w *waits) blame(key blamedKey, seconds, running float64) {
	series := w.blamed[key]
	if series == nil && len(w.blamed) >= maxBlamed {
		key.culpritCgroup, key.culprit = mergedName, mergedName
		series = w.blamed[key]
	}
	if series == nil {
		series = &blamedSeries{}
		w.blamed[key] = series
	}
	series.seconds += seconds
	series.seen = running
}

func (w *waits) collect(out chan<- prometheus.Metric) {
	for key, series := range w.calls {
		buckets := make(map[float64]uint64, len(waitBounds))
		for i, bound := range waitBounds {
			buckets[bound] = series.buckets[i]
		}
		out <- prometheus.MustNewConstHistogram(waitDesc, series.calls, series.seconds, buckets,
			key.device, key.cgroup, key.container, key.operation)
	}
	for key, series := range w.blamed {
		out <- prometheus.MustNewConstMetric(blamedDesc, prometheus.CounterValue, series.seconds,
			key.device, key.cgroup, key.container, key.culpritCgroup, key.culprit, key.cause)
	}
	out <- prometheus.MustNewConstMetric(waitsLostDesc, prometheus.CounterValue, float64(w.lost))
	out <- prometheus.MustNewConstMetric(waitEventsMissedDesc, prometheus.CounterValue, float64(w.missed))
}
