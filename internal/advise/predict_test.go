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
		Own:       Requests{200, 0.4, 0.6, 0.6}, Metadata: Requests{400, 0.4, 0.8, 0.8},
		Others: Requests{500, 20, 5, 5}, Flushes: Requests{200, 0.1, 0.1, 0.1},
	}
}

// random is an input that can be measured.
func random(r *rand.Rand) Input {
	in := Input{
		Seconds: 1 + 60*r.Float64(), Calls: MinCalls + uint64(r.IntN(5000)), Phases: map[string]float64{},
		Mode: []Mode{Ordered, Unwritten, Writeback, Journal}[r.IntN(4)], Rotational: r.IntN(2) == 0, SpanShare: float64(r.IntN(5)) / 4,
		Share: float64(r.IntN(5)) / 4, OthersCalls: uint64(r.IntN(5000)),
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
// way. The ways from others' requests become ways from the container's.
func TestMeasuredWaysSayWhatAVolumeGains(t *testing.T) {
	of := func(perRoot float64, fromOthers Moves) Remedy {
		in := example()
		in.Culprits, in.Others, in.Metadata, in.Flushes = nil, Requests{}, Requests{}, Requests{}
		in.Rotational, in.SpanShare = true, 0.25
		in.Near = moves(rand.New(rand.NewPCG(8, 8)), 1000, 1e-3, perRoot)
		in.OwnMoves = in.Near.Add(fromOthers)
		in.Moves = in.OwnMoves
		in.Seconds = in.OwnMoves.AloneSeconds // the disk does nothing else
		in.Own = Requests{in.OwnMoves.Requests, 0, in.Seconds, in.Seconds}
		return predict(t, in)[DeviceVolume]
	}
	// Seeks of half the length: at most twice the syncs.
	none, some, much := of(-1e-7, Moves{}).Gain, of(1e-6, Moves{}).Gain, of(10e-6, Moves{}).Gain
	far := of(10e-6, Moves{500, 500 * 6000, 500 * 6000 * 6000, 500 * 0.061, 500 * 6000 * 0.061}).Gain // four times as far as the mean
	text := fmt.Sprintf("gains: no time of the way %.3f, some %.3f, much %.3f, far from others %.3f", none.Median, some.Median, much.Median, far.Median)
	t.Log(text)
	if !isNear(none.Median, 1) || some.Median < 1.2 || much.Median < 1.2*some.Median || much.Median > 2 || far.Median < 1.5*much.Median {
		t.Error(text)
	}
	if much.High < 1.3*much.Median || much.Low > 1 {
		t.Errorf("%+v: in the range, time grows with the way, or ways get no shorter", much)
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
		// Two calls wait at a time, so the disk has half of that.
		in.Own, in.Metadata = Requests{200, 0.1, 0.2, 0.2}, Requests{400, 0.2, 0.3, 0.3}
		in.Others, in.Flushes = Requests{500, 20, (18.5 - seconds) / 2, (18.5 - seconds) / 2}, Requests{200, seconds / 2, seconds / 2, seconds / 2}
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
		in.Culprits, in.Others, in.OthersCalls, in.SpanShare = nil, Requests{}, 0, 0
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

// Whatever else the model says of others' turns: nothing would change.
func TestAMountThatIsWithoutOrderedDataAlreadyGivesNothing(t *testing.T) {
	in := example()
	in.DeviceVolume, in.ImageVolume, in.MemoryJournal = "no device", "no XFS", "no memory"
	for _, mode := range []Mode{Unwritten, Writeback, Journal} {
		in.Mode = mode
		advice, err := Predict(in)
		if err != nil || strings.Contains(advice.Verdict, kindTexts[MountOption]) {
			t.Errorf("%s: %v: %s", mode, err, advice.Verdict)
		}
		for _, r := range advice.Remedies {
			if r.Kind == MountOption && (r.Possible || math.Abs(r.Gain.Median-1) > 1e-9 || math.Abs(r.P99Seconds.Median/advice.Now.P99Seconds-1) > 1e-9) {
				t.Errorf("%s: gain %g, p99 %g, now %g", mode, r.Gain.Median, r.P99Seconds.Median, advice.Now.P99Seconds)
			}
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
	if advice, err := Predict(Input{Seconds: 3600}); err != nil || len(advice.Remedies) != 0 || advice.Verdict != "Too few syncs for a prediction: 0 in 3600 s, want 30." {
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
		"no such weight":  func(in *Input) { in.Share = 2 },
	} {
		in := example()
		change(&in)
		if _, err := Predict(in); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Neither the root cgroup nor those that have ended can have a weight or a limit.
func TestNoWeightAndNoLimitIsForACgroupThatCanHaveNone(t *testing.T) {
	waiting := func(cgroup string, culprits ...string) map[Kind]Remedy {
		in := example()
		waiter := account.Waiter{Cgroup: cgroup, Device: "sda1", Operation: "fsync", Calls: in.Calls, WaitSeconds: in.WaitSeconds, Phases: in.Phases}
		for i, c := range culprits {
			waiter.Culprits = append(waiter.Culprits, account.Culprit{Cgroup: c, Name: c, Cause: orderedData, Seconds: 7 / float64(i+1)})
		}
		measured := Measured([]account.Waiter{waiter}, cgroup, "sda1", in.Seconds)
		in.Cgroup, in.Culprits = measured.Cgroup, measured.Culprits
		return predict(t, in)
	}
	for _, cgroup := range []string{"/", "(ended)"} {
		if r := waiting(cgroup, "/b")[Weights]; r.Possible || r.Reason == "" {
			t.Errorf("weights for %s: %+v", cgroup, r)
		}
	}
	of := waiting("/a", "/", "(ended)")
	if r := of[Limit]; r.Possible || !strings.Contains(r.Reason, "root cgroup") {
		t.Errorf("a limit on the root cgroup: %+v", r)
	}
	if r := of[Weights]; !r.Possible {
		t.Errorf("weights for /a: %+v", r)
	}
	// The worst that can have a limit.
	r := waiting("/a", "/", "(ended)", "/b", "/c")[Limit]
	if want := waiting("/a", "/b")[Limit]; !r.Possible || !strings.Contains(r.Reason, "until /b's data") || r.Gain.Median <= want.Gain.Median {
		t.Errorf("a limit on /b, which caused a third of 7 s: %+v; of 7 s %+v", r, want)
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
	if in.OthersCalls != 80 {
		t.Errorf("%d syncs of others, want 80", in.OthersCalls)
	}
	if in.Calls != 30 || in.WaitSeconds != 4 || in.Phases[orderedData] != 3 || len(in.Culprits) != 1 || in.Culprits[0].Seconds[orderedData] != 2 ||
		len(in.Histogram) != 1 || in.Histogram[0].Calls != 30 {
		t.Errorf("%+v", in)
	}
	if err := in.Check(); err != nil {
		t.Error(err)
	}
}

// The journal's requests and the flushes are those of the whole disk, so the syncs are, too.
func TestSyncsOnOtherFileSystemsOfTheDiskCount(t *testing.T) {
	waiter := func(cgroup, device string, calls uint64) account.Waiter {
		return account.Waiter{Cgroup: cgroup, Device: device, Operation: "fsync", Calls: calls, WaitSeconds: 2}
	}
	waiters := []account.Waiter{waiter("/a", "sda1", 100), waiter("/b", "sda1", 20), waiter("/a", "sda2", 30), waiter("/b", "sda2", 50), waiter("/b", "sdb1", 400)}
	in := Measured(waiters, "/a", "sda1", 10, "sda2")
	if in.Calls != 100 || in.WaitSeconds != 2 || in.OthersCalls != 100 {
		t.Errorf("%d calls of %g s, %d of others; want 100 of 2 s, and 100", in.Calls, in.WaitSeconds, in.OthersCalls)
	}
	in.Metadata = Requests{Count: 400, ServedSeconds: 4}
	if c := in.cycle(); math.Abs(c.journal-0.02) > 1e-9 {
		t.Errorf("%g s of the journal are the container's; want a half of 0.04 s", c.journal)
	}
}
