package advise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// example is a container whose syncs wait for a neighbour's ordered data.
func example() Input {
	return Input{
		Seconds: 10, Calls: 200, WaitSeconds: 20, Mode: Ordered,
		Phases: map[string]float64{orderedData: 16, logWrites: 1, flush: 2, ownData: 0.8, rest: 0.2},
		Culprits: []Culprit{
			{Cgroup: "/b", Name: "b", Seconds: map[string]float64{orderedData: 15, logWrites: 0.5}},
		},
		Histogram: []account.WaitBucket{{UpperSeconds: 0.08, Calls: 100}, {UpperSeconds: 0.16, Calls: 90}, {UpperSeconds: 0.32, Calls: 10}},
		Own:       Requests{200, 0.4, 0.6, 0.6}, Metadata: Requests{400, 0.8, 1.6, 1.6},
		Others: Requests{500, 20, 5, 5}, Flushes: Requests{200, 0.1, 0.1, 0.1},
	}
}

// random is an input that can be measured.
func random(r *rand.Rand) Input {
	in := Input{
		Seconds: 1 + 60*r.Float64(), Calls: MinCalls + uint64(r.IntN(5000)), Phases: map[string]float64{},
		Mode: []Mode{Ordered, Unwritten, Writeback, Journal}[r.IntN(4)], Rotational: r.IntN(2) == 0, SpanShare: float64(r.IntN(5)) / 4,
	}
	scale := math.Exp(8*r.Float64() - 4)
	neighbour := Culprit{Cgroup: "/b", Name: "b", Seconds: map[string]float64{}}
	for _, phase := range account.WaitPhases {
		s := scale * r.Float64() * float64(r.IntN(2))
		in.Phases[phase] = s
		in.WaitSeconds += s
		if r.IntN(2) == 0 && phase != flush && phase != rest && phase != ownData {
			neighbour.Seconds[phase] = s * r.Float64()
		}
	}
	if in.WaitSeconds == 0 {
		in.Phases[rest], in.WaitSeconds = scale, scale
	}
	if r.IntN(3) > 0 {
		in.Culprits = []Culprit{neighbour}
	}
	left, upper := in.Calls, in.WaitSeconds/float64(in.Calls)/8
	for left > 0 {
		n := min(left, 1+uint64(r.IntN(int(in.Calls))))
		in.Histogram = append(in.Histogram, account.WaitBucket{UpperSeconds: upper, Calls: n})
		left, upper = left-n, upper*(1.125+r.Float64())
	}
	requests := func() Requests {
		served := min(in.Seconds, scale) * r.Float64()
		return Requests{uint64(r.IntN(1000)), scale * r.Float64(), served, served * r.Float64()}
	}
	in.Own, in.Metadata, in.Others, in.Flushes = requests(), requests(), requests(), requests()
	if r.IntN(2) == 0 {
		in.Near = moves(r, r.IntN(200), 1e-3*scale, 1e-6*scale)
		in.OwnMoves = in.Near.Add(moves(r, r.IntN(200), 1e-3*scale, 1e-6*scale))
		in.Moves = in.OwnMoves.Add(moves(r, r.IntN(200), 1e-3*scale, 1e-6*scale))
	}
	return in
}

// moves are requests that take a time, and more for each root of their way.
func moves(r *rand.Rand, requests int, seconds, perRoot float64) Moves {
	var all Moves
	for range requests {
		root := float64(r.IntN(3000))
		takes := seconds*r.ExpFloat64() + perRoot*root
		all = all.Add(Moves{1, root, root * root, takes, root * takes})
	}
	return all
}

// The time by the root of the way is found beside what else a request takes. Too few
// requests, or ways of one length, show nothing.
func TestTheTimeOfAWayIsFitted(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7)) // the same in each run
	const perRoot = 4e-6
	if got, known := moves(r, 3000, 1e-3, perRoot).secondsPerRoot(); !known || got < 0.9*perRoot || got > 1.1*perRoot {
		t.Errorf("%g s for each root, known: %v; want %g", got, known, perRoot)
	}
	if got, known := moves(r, minMoves-1, 0, perRoot).secondsPerRoot(); known {
		t.Errorf("%g s for each root of too few requests", got)
	}
	if got, known := (Moves{1000, 5000, 25000, 2, 11}).secondsPerRoot(); known {
		t.Errorf("%g s for each root of ways of one length", got)
	}
	if got, known := moves(r, 3000, 1e-3, -perRoot/8).secondsPerRoot(); got != 0 || !known {
		t.Errorf("%g s for each root where longer ways take less, known: %v", got, known)
	}
}

// What a volume gains by shorter ways depends on the measured part of a request that is
// way, and only between its own requests.
func TestMeasuredWaysSayWhatAVolumeGains(t *testing.T) {
	of := func(perRoot float64, others int) Range {
		in := example()
		in.Culprits, in.Others = nil, Requests{}
		in.Rotational, in.SpanShare = true, 0.25
		r := rand.New(rand.NewPCG(8, 8))
		in.Near = moves(r, 1000, 1e-3, perRoot)
		in.OwnMoves = in.Near.Add(moves(r, others, 1e-3, perRoot)) // from others' requests
		in.Moves = in.OwnMoves
		return predict(t, in)[DeviceVolume].Gain
	}
	// Seeks of half the length: at most twice the syncs.
	none, some, much, between := of(-1e-7, 0), of(1e-6, 0), of(10e-6, 0), of(10e-6, 1000)
	text := fmt.Sprintf("gains: no time of the way %.3f, some %.3f, much %.3f, half of it from others %.3f", none.Median, some.Median, much.Median, between.Median)
	t.Log(text)
	if !isNear(none.Median, 1) || some.Median < 1.2 || much.Median < 1.2*some.Median || much.Median > 2 || between.Median > 0.9*much.Median || between.Median < 1.2 {
		t.Error(text)
	}
}

func predict(t *testing.T, in Input) map[Kind]Remedy {
	t.Helper()
	advice, err := Predict(in)
	if err != nil {
		t.Fatal(err)
	}
	remedies := map[Kind]Remedy{}
	for _, r := range advice.Remedies {
		remedies[r.Kind] = r
	}
	if len(remedies) != len(Kinds()) {
		t.Fatalf("%d remedies; want %d", len(remedies), len(Kinds()))
	}
	return remedies
}

func TestRangesContainTheirMedian(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		in := random(r)
		for kind, remedy := range predict(t, in) {
			for name, of := range map[string]Range{"gain": remedy.Gain, "syncs": remedy.SyncsPerSecond, "p50": remedy.P50Seconds, "p99": remedy.P99Seconds} {
				if !(of.Low > 0 && of.Low <= of.Median && of.Median <= of.High && !math.IsInf(of.High, 0)) {
					t.Fatalf("%s of %s is %+v for %+v", name, kind, of, in)
				}
			}
			if remedy.P50Seconds.Median > remedy.P99Seconds.Median*(1+1e-9) {
				t.Fatalf("%s: p50 %g, p99 %g for %+v", kind, remedy.P50Seconds.Median, remedy.P99Seconds.Median, in)
			}
			if remedy.Reason == "" {
				t.Fatalf("%s has no reason", kind)
			}
		}
	}
}

// In other units of time, the times are in these units and the gains are the same.
func TestTheUnitOfTimeDoesNotMatter(t *testing.T) {
	const unit = 1000
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		in := random(r)
		slow := in
		slow.Seconds, slow.WaitSeconds = in.Seconds*unit, in.WaitSeconds*unit
		scaled := func(of map[string]float64) map[string]float64 {
			all := map[string]float64{}
			for name, s := range of {
				all[name] = s * unit
			}
			return all
		}
		slow.Phases = scaled(in.Phases)
		slow.Culprits = nil
		for _, c := range in.Culprits {
			slow.Culprits = append(slow.Culprits, Culprit{c.Cgroup, c.Name, scaled(c.Seconds)})
		}
		slow.Histogram = slices.Clone(in.Histogram)
		for i := range slow.Histogram {
			slow.Histogram[i].UpperSeconds *= unit
		}
		for _, r := range []*Requests{&slow.Own, &slow.Metadata, &slow.Others, &slow.Flushes} {
			r.QueuedSeconds, r.ServedSeconds, r.AloneSeconds = r.QueuedSeconds*unit, r.ServedSeconds*unit, r.AloneSeconds*unit
		}
		for _, m := range []*Moves{&slow.Moves, &slow.OwnMoves, &slow.Near} {
			m.AloneSeconds, m.Products = m.AloneSeconds*unit, m.Products*unit
		}
		quick, slowed := predict(t, in), predict(t, slow)
		for kind := range quick {
			if a, b := quick[kind].Gain.Median, slowed[kind].Gain.Median; !isNear(a, b) {
				t.Fatalf("%s: a gain of %g, in other units %g", kind, a, b)
			}
			if a, b := quick[kind].P99Seconds.Median, slowed[kind].P99Seconds.Median; !isNear(a*unit, b) {
				t.Fatalf("%s: p99 %g, in other units %g", kind, a, b)
			}
			if a, b := quick[kind].SyncsPerSecond.Median, slowed[kind].SyncsPerSecond.Median; !isNear(a, b*unit) {
				t.Fatalf("%s: %g syncs/s, in other units %g", kind, a, b)
			}
		}
	}
}

func isNear(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(math.Abs(a), math.Abs(b)) }

// The more of the time is the disk's flush, the less a journal of its own gives.
func TestMoreFlushMeansLessGain(t *testing.T) {
	before := math.Inf(1)
	for _, seconds := range []float64{1, 4, 8, 12, 16, 18} {
		in := example()
		in.Phases = map[string]float64{orderedData: 18.5 - seconds, logWrites: 0.5, flush: seconds, ownData: 0.8, rest: 0.2}
		in.Culprits[0].Seconds = map[string]float64{orderedData: 18.5 - seconds}
		gain := predict(t, in)[DeviceVolume].Gain.Median
		if gain >= before {
			t.Errorf("with %g s of flush the gain is %g; with less it was %g", seconds, gain, before)
		}
		before = gain
	}
	if before > 1.2 {
		t.Errorf("with 18 of 20 s in the flush the gain is %g", before)
	}
}

// Without a neighbour there is nothing to gain, whatever the phases are.
func TestWithoutANeighbourTheGainIsOne(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		in := random(r)
		in.Culprits, in.Others, in.SpanShare = nil, Requests{}, 0
		remedies := predict(t, in)
		for _, kind := range []Kind{DeviceVolume, ImageVolume, MountOption, Weights, Limit} {
			if gain := remedies[kind].Gain.Median; gain < 0.9 || gain > 1.1 {
				t.Fatalf("%s gives %g for %+v", kind, gain, in)
			}
		}
	}
}

// The whole time is the neighbour's data: a volume helps, and a limit makes it worse.
func TestANeighboursOrderedDataIsAvoidedByAVolume(t *testing.T) {
	in := example()
	advice, err := Predict(in)
	if err != nil {
		t.Fatal(err)
	}
	remedies := predict(t, in)
	if gain := remedies[DeviceVolume].Gain.Median; gain < 2 || gain > 20 {
		t.Errorf("a volume gives %g", gain)
	}
	if gain := remedies[MountOption].Gain.Median; gain < 2 {
		t.Errorf("the mount option gives %g", gain)
	}
	if gain := remedies[Limit].Gain.Median; gain >= 1 {
		t.Errorf("a limit gives %g; the commit would wait longer for the data", gain)
	}
	if advice.Best == "" || !strings.HasPrefix(advice.Verdict, "What helps most is ") {
		t.Errorf("%+v", advice)
	}
}

func TestNothingHelpsAgainstTheDisksOwnFlush(t *testing.T) {
	in := example()
	in.Phases = map[string]float64{flush: 19, logWrites: 1}
	in.Culprits, in.Others = nil, Requests{}
	in.Flushes = Requests{200, 0, 19, 19}
	advice, err := Predict(in)
	if err != nil || advice.Best != "" || advice.Verdict != "Nothing here helps: 95 % of the time is the disk's own flush." {
		t.Errorf("%v: %+v", err, advice)
	}
}

func TestWhatIsNotPossibleIsNotTheBest(t *testing.T) {
	in := example()
	in.DeviceVolume, in.ImageVolume, in.MemoryJournal = "no device", "no XFS", "no memory"
	in.Mode = Journal
	advice, err := Predict(in)
	if err != nil || advice.Best != "" || !strings.Contains(advice.Verdict, "but this host has no place for it") {
		t.Errorf("%v: %+v", err, advice)
	}
	for _, r := range advice.Remedies {
		if r.Kind == DeviceVolume && (r.Possible || r.Reason != "no device") {
			t.Errorf("%+v", r)
		}
	}
}

func TestTooFewSyncsPredictNothing(t *testing.T) {
	in := example()
	in.Calls = MinCalls - 1
	advice, err := Predict(in)
	if err != nil || len(advice.Remedies) != 0 || advice.Best != "" || advice.NeededCalls != MinCalls ||
		!strings.HasPrefix(advice.Verdict, "Too few syncs for a prediction") {
		t.Errorf("%v: %+v", err, advice)
	}
	if advice, err := Predict(Input{Seconds: 1}); err != nil || len(advice.Remedies) != 0 {
		t.Errorf("%v: %+v", err, advice)
	}
}

func TestImpossibleMeasurementsAreErrors(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"no time":         func(in *Input) { in.Seconds = 0 },
		"no number":       func(in *Input) { in.WaitSeconds = math.NaN() },
		"negative":        func(in *Input) { in.Own.ServedSeconds = -1 },
		"unknown phase":   func(in *Input) { in.Phases["sleep"] = 1 },
		"more than phase": func(in *Input) { in.Culprits[0].Seconds[orderedData] = 17 },
		"too large":       func(in *Input) { in.SpanShare = 2 },
	} {
		in := example()
		change(&in)
		if _, err := Predict(in); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The quantiles are those of the histogram's calls.
func TestQuantilesOfTheHistogram(t *testing.T) {
	in := Input{Histogram: []account.WaitBucket{{UpperSeconds: 0.009, Calls: 98}, {UpperSeconds: 0.9, Calls: 2}}}
	if p50 := in.quantile(0.5); p50 < 0.008 || p50 > 0.009 {
		t.Errorf("p50 is %g", p50)
	}
	if p99 := in.quantile(0.99); p99 < 0.8 || p99 > 0.9 {
		t.Errorf("p99 is %g", p99)
	}
}

func TestWaitersOfOneContainerAreAddedUp(t *testing.T) {
	waiter := func(cgroup, operation string, calls uint64) account.Waiter {
		return account.Waiter{
			Cgroup: cgroup, Device: "sda1", Operation: operation, Calls: calls, WaitSeconds: 2,
			Phases:    map[string]float64{orderedData: 1.5, flush: 0.5},
			Culprits:  []account.Culprit{{Cgroup: "/b", Name: "b", Cause: orderedData, Seconds: 1}, {Cgroup: "/a", Cause: orderedData, Seconds: 0.5}, {Cause: flush, Seconds: 0.5}},
			Histogram: []account.WaitBucket{{UpperSeconds: 0.1, Calls: calls}},
		}
	}
	in := Measured([]account.Waiter{
		waiter("/a", "fsync", 10), waiter("/a", "fdatasync", 20), waiter("/a", "handle", 40), waiter("/c", "fsync", 80),
	}, "/a", "sda1", 10)
	if in.Calls != 30 || in.WaitSeconds != 4 || in.Phases[orderedData] != 3 || len(in.Culprits) != 1 || in.Culprits[0].Seconds[orderedData] != 2 ||
		len(in.Histogram) != 1 || in.Histogram[0].Calls != 30 {
		t.Errorf("%+v", in)
	}
	if err := in.Check(); err != nil {
		t.Error(err)
	}
}

// Alone on a hard disk, a volume on a quarter of it has shorter seeks. That shortens the
// mean and the median, and not the longest calls, which wait behind many requests.
func TestShorterSeeksDoNotShortenTheTail(t *testing.T) {
	in := example()
	in.Culprits, in.Others = nil, Requests{}
	in.Rotational, in.SpanShare = true, 0.25
	r := predict(t, in)[DeviceVolume]
	if want := in.quantile(0.99); math.Abs(r.P99Seconds.Median/want-1) > 1e-9 {
		t.Errorf("p99 %g; want %g as now", r.P99Seconds.Median, want)
	}
	// Seeks of half the length make requests a third shorter. 5 of 100 ms are not spent in
	// such requests: 1 ms in no phase, 3 of 10 ms of the flush phase, and 0.5 ms that the
	// disk flushes. Before it, the flush waits 0.5 ms for other requests.
	if want := (0.045 + 0.955*2/3) * in.quantile(0.5); math.Abs(r.P50Seconds.Median/want-1) > 1e-9 {
		t.Errorf("p50 %g; want %g", r.P50Seconds.Median, want)
	}
}

// The syncs of a closed loop: what the container writes between two of them takes its
// time, too, and gets shorter where others' ordered data is gone.
func TestWritesBetweenSyncsLimitTheGain(t *testing.T) {
	in := example()
	in.Own = Requests{200, 0.4, 0.6, 0.6} // 5 ms each, of which 4 ms are in the syncs
	before := predict(t, in)[DeviceVolume].Gain.Median
	in.Own = Requests{200, 0.4, 3.6, 3.6} // 20 ms
	after := predict(t, in)[DeviceVolume].Gain.Median
	if after > 0.8*before {
		t.Errorf("with 16 ms of writes between syncs the gain is %g, with 1 ms %g", after, before)
	}
	in.Own = Requests{200, 3.4, 0.6, 0.6} // 3 ms on the disk, and 17 ms behind the commit's ordered data
	in.Others = Requests{500, 0, 1, 1}    // whose requests take 2 ms
	if of := in.onDevice(); math.Abs(of.workless-0.012) > 1e-9 {
		t.Errorf("writes between syncs get %g s shorter, want 0.012: 5 ms of which 1 ms is in the sync", of.workless)
	}
	in.Own.Count, in.Own.QueuedSeconds, in.Own.ServedSeconds = 20000, 340, 60 // written in the background
	if got := in.think(); math.Abs(got-0.016) > 1e-9 {
		t.Errorf("%g s between syncs, want 0.016 for one of the 100 writes", got)
	}
}

// A commit writes its log while it waits for ordered data. Without the data the log shows.
func TestTheLogShowsWhereOrderedDataIsGone(t *testing.T) {
	in := example()
	in.Metadata = Requests{400, 0.8, 3.2, 3.2} // a write of the log and one of the record for each, 10 ms
	in.Phases = map[string]float64{orderedData: 19, logWrites: 0.2, flush: 0.8}
	in.Culprits[0].Seconds = map[string]float64{orderedData: 19}
	if got := in.hiddenLog(); math.Abs(got-0.009) > 1e-9 {
		t.Errorf("%g s of the log are hidden, want 0.009", got)
	}
	if p := in.ownParts(1); math.Abs(p.requests-0.014) > 1e-9 || math.Abs(p.kept-0.005) > 1e-9 {
		t.Errorf("%+v; want 14 ms: 5 ms of log and flush that show, and 9 ms of the log", p)
	}
	in.Phases[logWrites], in.Phases[orderedData] = 4, 15
	in.Culprits[0].Seconds[orderedData] = 15
	if got := in.hiddenLog(); got != 0 {
		t.Errorf("%g s of the log are hidden, but all of it shows", got)
	}
	in.Culprits = nil
	if got := in.hiddenLog(); got != 0 {
		t.Errorf("%g s of the log are hidden without others", got)
	}
}

// Time in the phases of data and flush that the disk's requests do not explain stays, as
// does what is in no phase: a shorter seek does not shorten it.
func TestWhatIsNotInRequestsStays(t *testing.T) {
	in := example()
	in.Culprits, in.Others = nil, Requests{}
	in.Phases = map[string]float64{ownData: 10, flush: 9, rest: 1}
	in.Own, in.Metadata, in.Flushes = Requests{200, 0, 1, 1}, Requests{200, 0, 0.4, 0.4}, Requests{200, 0, 0.8, 0.8}
	in.Rotational, in.SpanShare = true, 0.25
	if p := in.ownParts(1); math.Abs(p.requests-0.01) > 1e-9 || math.Abs(p.outside-0.09) > 1e-9 || math.Abs(p.kept-0.1) > 1e-9 {
		t.Errorf("%+v", p)
	}
	// 4 ms are the flush.
	if got, want := in.onDevice().Median, 0.094+0.006*2/3; math.Abs(got-want) > 1e-9 {
		t.Errorf("a call takes %g s, want %g", got, want)
	}
	in.Own, in.Metadata, in.Flushes = Requests{}, Requests{}, Requests{} // not known
	if p := in.ownParts(1); math.Abs(p.requests-0.095) > 1e-9 || math.Abs(p.outside-0.005) > 1e-9 {
		t.Errorf("%+v", p)
	}
}
