package advise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// loop is a container that writes and syncs in turn on a hard disk, beside a neighbour
// that always has a request waiting there. Times are means, in seconds.
type loop struct {
	// own is a request of the container after a seek over the whole disk, others one
	// of the neighbour's.
	own, others, flush float64
	// data is how many of the neighbour's requests a commit waits for.
	data int
	// span is the part of the disk that a volume has.
	span float64
	// share is the part of the disk's time that the container has in a volume by its
	// weight; 0: each of its writes waits there for one of the neighbour's.
	share float64
}

// measured is what was measured of a loop.
type measured struct {
	in    Input
	calls []float64
}

func (m measured) rate() float64 { return float64(len(m.calls)) / m.in.Seconds }

// run simulates some syncs: on the shared file system, or in a volume.
func (l loop) run(r *rand.Rand, syncs int, volume bool) measured {
	m := measured{in: Input{
		Mode: Ordered, Rotational: true, SpanShare: l.span, Share: l.share, Calls: uint64(syncs), Phases: map[string]float64{},
	}}
	random := func(mean float64) float64 { return mean * r.ExpFloat64() }
	var now float64
	var served, turns float64 // the container's time and the neighbour's, each over its weight
	// request is one of the container's: behind is how many of the neighbour's are
	// before it. The disk is kept for the requests that follow it.
	request := func(of *Requests, behind int) float64 {
		queued, takes := 0.0, random(l.own)
		switch {
		case volume && l.share > 0:
			takes *= 1 - usualSeekPart*(1-math.Sqrt(l.span))
			for turns < served {
				turn := random(l.others)
				queued, turns = queued+turn, turns+turn/(1-l.share)
			}
			served += takes / l.share
		case behind > 0:
			for range behind { // what is left of the one that the disk serves is as long
				queued += random(l.others)
			}
		case volume:
			takes *= 1 - usualSeekPart*(1-math.Sqrt(l.span))
		}
		*of = of.Add(Requests{1, queued, takes, takes})
		return queued + takes
	}
	buckets := map[int]uint64{}
	for range syncs {
		behind := 1
		if !volume && r.IntN(2) == 0 {
			behind += l.data / 2 // a commit has just sent its data
		}
		now += request(&m.in.Own, behind) // a write before the sync
		own := request(&m.in.Own, 0)
		var data float64
		if !volume {
			for range l.data {
				data += random(l.others)
			}
		}
		log := request(&m.in.Metadata, 1)
		record, flushed := request(&m.in.Metadata, 0), random(l.flush)
		m.in.Flushes = m.in.Flushes.Add(Requests{1, 0, flushed, flushed})
		for phase, s := range map[string]float64{ownData: own, orderedData: data, logWrites: max(0, log-data), flush: record + flushed} {
			m.in.Phases[phase] += s
		}
		call := own + max(data, log) + record + flushed
		now += call
		m.in.WaitSeconds += call
		m.calls = append(m.calls, call)
		buckets[int(math.Floor(8*math.Log2(call)))]++
	}
	for at := -200; at < 200; at++ {
		if buckets[at] > 0 {
			m.in.Histogram = append(m.in.Histogram, account.WaitBucket{UpperSeconds: math.Exp2(float64(at+1) / 8), Calls: buckets[at]})
		}
	}
	m.in.Seconds = now
	others := now - m.in.Own.ServedSeconds - m.in.Metadata.ServedSeconds - m.in.Flushes.ServedSeconds
	m.in.Others = Requests{uint64(others / l.others), 10 * others, others, others}
	if !volume {
		m.in.Culprits = []Culprit{{Cgroup: "/b", Name: "b", Seconds: map[string]float64{orderedData: m.in.Phases[orderedData]}}}
	}
	return m
}

// The gain of a volume is that of the simulated loop, and its p99 is in the range, from
// hardly any of the neighbour's data in a commit to much.
func TestAVolumeGivesWhatTheLoopGives(t *testing.T) {
	for n, l := range []loop{
		{own: 0.005, others: 0.010, flush: 0.0005, data: 1, span: 0.25},
		{own: 0.005, others: 0.010, flush: 0.0005, data: 4, span: 0.25},
		{own: 0.005, others: 0.010, flush: 0.0005, data: 30, span: 0.25},
		{own: 0.012, others: 0.015, flush: 0.001, data: 10, span: 0.5},
		{own: 0.002, others: 0.020, flush: 0.0005, data: 10, span: 0.1},
		{own: 0.005, others: 0.010, flush: 0.1, data: 4, span: 0.25},
		{own: 0.005, others: 0.010, flush: 0.0005, data: 30, span: 1},
		{own: 0.005, others: 0.010, flush: 0.0005, data: 1, span: 0.25, share: 0.8},
		{own: 0.005, others: 0.010, flush: 0.0005, data: 4, span: 0.25, share: 0.5},
		{own: 0.005, others: 0.010, flush: 0.0005, data: 30, span: 0.25, share: 0.2},
		{own: 0.005, others: 0.020, flush: 0.0005, data: 10, span: 1, share: 0.7},
	} {
		r := rand.New(rand.NewPCG(9, uint64(n))) // the same in each run
		shared, volume := l.run(r, 1000, false), l.run(r, 1000, true)
		predicted := predict(t, shared.in)[DeviceVolume]
		gain, p99 := volume.rate()/shared.rate(), volume.in.quantile(0.99)
		text := fmt.Sprintf("%+v: throughput %.2f (%.2f to %.2f), simulated %.2f; p99 %.1f (%.1f to %.1f) ms, simulated %.1f", l,
			predicted.Gain.Median, predicted.Gain.Low, predicted.Gain.High, gain,
			1e3*predicted.P99Seconds.Median, 1e3*predicted.P99Seconds.Low, 1e3*predicted.P99Seconds.High, 1e3*p99)
		t.Log(text)
		if factor := predicted.Gain.Median / gain; factor > 1.5 || factor < 1/1.5 { // the bound of bench-advise
			t.Errorf("%s", text)
		}
		if inside(predicted.P99Seconds, p99) == 0 {
			t.Errorf("%s", text)
		}
	}
}
