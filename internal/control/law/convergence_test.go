package law

import (
	"fmt"
	"math"
	"testing"
)

func reader(ideal float64) *simContainer { return &simContainer{ideal: ideal} }

// metadataWriter also reads, like B of paper 1.
func metadataWriter(ideal, rate float64) *simContainer {
	return &simContainer{ideal: ideal, metadataRate: rate, coupled: 0.1, inPlace: 0.8, burst: 1}
}

// loads are those of the acceptance criterion, with in-place metadata spread evenly
// and in bursts.
var loads = map[string]func() []*simContainer{
	"50:50": func() []*simContainer { return []*simContainer{reader(50), metadataWriter(50, 5e6)} },
	"70:30": func() []*simContainer { return []*simContainer{reader(700), metadataWriter(300, 3e6)} },
	"40:30:20:10": func() []*simContainer {
		return []*simContainer{reader(40), metadataWriter(30, 2e6), reader(20), metadataWriter(10, 0.6e6)}
	},
}

func TestBothLawsBringTheSharesToTheirTargets(t *testing.T) {
	for name, load := range loads {
		for _, law := range []string{"none", PaperLaw, FeedbackLaw} {
			var worst, held, bytes float64
			const runs = 40
			for seed := range uint64(runs) {
				disk := newSimDisk(seed, 0.04, load()...)
				var l Law
				if law != "none" {
					l, _ = NewLaw(law, BFQRange)
				}
				out := steer(disk, l, BFQRange, 5, 12) // a minute
				worst = math.Max(worst, out.worstMean(disk.targets()))
				held += out.held(disk.targets(), 0.05) / runs
				bytes += out.bytes
			}
			t.Logf("%-12s %-9s worst mean %.2f points off, %.0f %% of intervals within 5 points", name, law, 100*worst, 100*held)
			switch {
			case law == "none" && worst < 0.05:
				t.Errorf("%s: uncontrolled shares are right by themselves: the disk shows nothing", name)
			case law == PaperLaw && worst > 0.03:
				t.Errorf("%s: the paper's law leaves a share %.3f from its target", name, worst)
			case law == FeedbackLaw && (worst > 0.01 || held < 0.9):
				t.Errorf("%s: feedback leaves a share %.3f from its target, holds %.2f of the intervals", name, worst, held)
			}
		}
	}
}

func TestFeedbackHoldsManyContainers(t *testing.T) {
	for _, count := range []int{2, 3, 8, 17, 64} {
		var containers []*simContainer
		for n := range count {
			ideal := float64(100 + 50*(n%3))
			if n%2 == 0 {
				containers = append(containers, reader(ideal))
			} else {
				containers = append(containers, metadataWriter(ideal, 4e6/float64(count)))
			}
		}
		disk := newSimDisk(uint64(count), 0.05, containers...)
		out := steer(disk, NewFeedback(BFQRange), BFQRange, 5, 36)
		if worst := out.worstMean(disk.targets()); worst > 0.01 {
			t.Errorf("%d containers: a mean share is %.3f from its target", count, worst)
		}
	}
}

func TestFeedbackRestsWherePaperSwings(t *testing.T) {
	for _, noise := range []float64{0.05, 0.1, 0.2} {
		unrest := map[string]float64{}
		for _, name := range []string{PaperLaw, FeedbackLaw} {
			law, _ := NewLaw(name, BFQRange)
			disk := newSimDisk(7, noise, reader(500), metadataWriter(500, 4e6))
			unrest[name] = steer(disk, law, BFQRange, 5, 200).unrest()
		}
		if unrest[FeedbackLaw] > 0.6*unrest[PaperLaw] {
			t.Errorf("noise %.2f: weights move by %.3f an interval, the paper's by %.3f", noise, unrest[FeedbackLaw], unrest[PaperLaw])
		}
	}
}

func TestWithoutNoiseTheWeightsComeToRest(t *testing.T) {
	disk := newSimDisk(1, 0, reader(500), metadataWriter(500, 4e6))
	out := steer(disk, NewFeedback(BFQRange), BFQRange, 5, 100)
	last := out.weights[len(out.weights)-1]
	for _, weights := range out.weights[60:] {
		for n := range weights {
			if math.Abs(weights[n]-last[n]) > 5 {
				t.Fatalf("weights still move: %v, in the end %v", weights, last)
			}
		}
	}
}

func TestBurstsOfMetadataAreRepaid(t *testing.T) {
	burst := metadataWriter(500, 3e6)
	burst.burst, burst.inPlace = 6, 0.6 // every 30 s
	disk := newSimDisk(3, 0.05, reader(500), burst)
	out := steer(disk, NewFeedback(BFQRange), BFQRange, 5, 60)
	if worst := out.worstMean(disk.targets()); worst > 0.01 {
		t.Errorf("mean share is %.3f from its target", worst)
	}
}

func TestASchedulerThatIsNotExactIsCorrected(t *testing.T) {
	slow := reader(500)
	slow.efficiency = 0.6 // seeks: it gets fewer bytes for its weight
	disk := newSimDisk(3, 0.05, slow, metadataWriter(500, 3e6))
	out := steer(disk, NewFeedback(BFQRange), BFQRange, 5, 36)
	if worst := out.worstMean(disk.targets()); worst > 0.01 {
		t.Errorf("mean share is %.3f from its target", worst)
	}
}

func TestAContainerThatWantsLittleDoesNotWindUp(t *testing.T) {
	modest := reader(300)
	modest.demand = 4e6 // a tenth of the disk, although its share is a third
	disk := newSimDisk(5, 0.05, modest, reader(300), metadataWriter(300, 3e6))
	law := NewFeedback(BFQRange)
	out := steer(disk, law, BFQRange, 5, 36)
	// The surplus goes to the others by their ideals: half each.
	others := (1 - out.mean[0]) / 2
	for n := 1; n < 3; n++ {
		if math.Abs(out.mean[n]-others) > 0.015 {
			t.Errorf("container %d has %.3f of the disk, want %.3f", n, out.mean[n], others)
		}
	}
	// Weights do not rise above the bound.
	last := out.weights[len(out.weights)-1]
	if last[0] > maxBoost*300*1.2 {
		t.Errorf("weight %v of the modest container: wound up", last[0])
	}
	if debt := law.memory["c0"].debtBytes; debt != 0 {
		t.Errorf("it is owed %v bytes that it did not want", -debt)
	}
	// Now it can use all that it gets: it has its share after one interval.
	modest.demand = 0
	out = steer(disk, law, BFQRange, 5, 12)
	if out.intervals[0][0] > 0.62 {
		t.Errorf("it jumps to %.2f of the disk; its share is a third", out.intervals[0][0])
	}
	for at, shares := range out.intervals[1:] {
		if math.Abs(shares[0]-1.0/3) > 0.05 {
			t.Errorf("interval %d after waking: share %.3f, want 0.333", at+1, shares[0])
		}
	}
}

func TestTheBoostOfOneAgainstAnotherIsBounded(t *testing.T) {
	modest := reader(500)
	modest.demand = 1e6
	disk := newSimDisk(5, 0.05, modest, reader(500))
	out := steer(disk, NewFeedback(BFQRange), BFQRange, 5, 36)
	last := out.weights[len(out.weights)-1]
	// A sibling that is due half, beside one that uses nearly all: 1 : 2, raised.
	if ratio := last[0] / last[1]; ratio > maxBoost*0.6 || ratio < 1 {
		t.Errorf("weights %v: %.2f : 1", last, ratio)
	}
}

// A database that waits for each sync uses a small part of its share. A lower weight would make it
// wait longer.
func TestAContainerThatCannotUseAGreatShareKeepsItsWeight(t *testing.T) {
	for _, ideals := range [][]float64{{900, 100}, {700, 300}, {800, 100, 100}, {500, 500}} {
		var containers []*simContainer
		var sum float64
		for _, ideal := range ideals {
			containers = append(containers, reader(ideal))
			sum += ideal
		}
		containers[0].demand = 2e6 // a twentieth of the disk
		disk := newSimDisk(5, 0.05, containers...)
		out := steer(disk, NewFeedback(BFQRange), BFQRange, 0.5, 200)
		for at, weights := range out.weights[20:] {
			var all float64
			for _, weight := range weights {
				all += weight
			}
			if weights[0]/all < ideals[0]/sum-0.01 {
				t.Errorf("step %d: weights %v; the ideals are %v", at+20, weights, ideals)
				break
			}
		}
	}
}

func TestTwoExtremeAnswersDoNotBoostTwice(t *testing.T) {
	slow := &sibling{memory: &memory{response: -math.Log(maxBoost)}, o: Observation{Ideal: 300, Weight: 300}, want: 10}
	fast := &sibling{memory: &memory{response: math.Log(maxBoost)}, o: Observation{Ideal: 300, Weight: 300}, want: 10}
	NewFeedback(BFQRange).weigh([]*sibling{slow, fast})
	if math.Abs(slow.weight-450) > 1 || math.Abs(fast.weight-150) > 1 {
		t.Errorf("weights %v and %v, want 450 and 150", slow.weight, fast.weight)
	}
}

func TestTheSurplusOfOneGoesToTheOthersByTheirIdeals(t *testing.T) {
	rate := func(charged, hidden float64) *memory {
		return &memory{charged: Mean{charged, 1}, hidden: Mean{hidden, 1}}
	}
	active := []*sibling{
		{memory: rate(4, 0), o: Observation{Ideal: 100}},
		{memory: rate(26, 0), o: Observation{Ideal: 200}},
		{memory: rate(6, 4), o: Observation{Ideal: 100}},
	}
	active[0].limited = true
	divide(5, active)
	// 40 in all: the first keeps its 4 (and is offered 10); of 36 the others
	// get 24 and 12, the third's with 4 hidden.
	for n, want := range []float64{10, 24, 8} {
		if got := active[n].want; math.Abs(got-want) > 1e-6 {
			t.Errorf("sibling %d should be charged for %.3f, want %v", n, got, want)
		}
	}
}

func TestAContainerWithASmallShareIsNotStarvedByItsBursts(t *testing.T) {
	// As measured on BFQ: hidden I/O of more than its share in one interval, and
	// none in the next.
	burst := &simContainer{ideal: 10, metadataRate: 2e6, inPlace: 1, burst: 4}
	disk := newSimDisk(5, 0.05, reader(40), metadataWriter(30, 2e6), reader(20), burst)
	out := steer(disk, NewFeedback(BFQRange), BFQRange, 5, 40)
	for at, weights := range out.weights {
		if weights[3] < 2 {
			t.Errorf("interval %d: its weight is %v of 100", at, weights[3])
		}
	}
}

func TestNoDebtForWhatNoWeightCanPrevent(t *testing.T) {
	// Of 100 bytes in 5 s, 50 are due to it.
	cases := []struct {
		name                                            string
		weight, charged, journal, writeback, debt, late float64
		memory                                          memory
	}{
		{name: "at the least weight", weight: 1, charged: 80},
		{name: "at the least weight, with a burst of its journal", weight: 1, charged: 20, journal: 60, debt: 10},
		{name: "held at its least", weight: 50, charged: 80, memory: memory{floored: true, leastRate: 16}},
		{name: "held at its least, with a burst of its journal", weight: 50, charged: 20, journal: 60, debt: 10, memory: memory{floored: true, leastRate: 4}},
		{name: "held at its least, with a burst of writeback", weight: 50, charged: 20, journal: 60, writeback: 60, debt: 10, late: 10, memory: memory{floored: true, leastRate: 4}},
		{name: "free", weight: 50, charged: 80, debt: 30},
	}
	for _, c := range cases {
		s := &sibling{memory: &c.memory, o: Observation{Ideal: 100, Weight: c.weight, OtherBytes: c.charged, JournalBytes: c.journal, WritebackBytes: c.writeback}}
		other := &sibling{memory: &memory{}, o: Observation{Ideal: 100, Weight: 150, OtherBytes: 20}}
		keepDebts(5, []*sibling{s, other}, BFQRange, func(*memory) float64 { return 0 })
		// The debts must add up to zero: each takes half of the difference.
		lack := 30.0
		if want, debt := c.debt-(c.debt-lack)/2, s.debtBytes+s.lateBytes+s.arrearsBytes; math.Abs(debt-want) > 1e-9 {
			t.Errorf("%s: all debts %v, want %v", c.name, debt, want)
		}
		if math.Abs(s.lateBytes-c.late) > 1e-9 {
			t.Errorf("%s: %v of it is late, want %v", c.name, s.lateBytes, c.late)
		}
	}
}

func TestAContainerThatLogsMoreThanItsShareIsHeldAtTheFloor(t *testing.T) {
	hog := &simContainer{ideal: 200, metadataRate: 20e6, burst: 1} // half the disk by its journal
	disk := newSimDisk(5, 0.05, reader(400), hog, reader(200))
	law := NewFeedback(BFQRange)
	out := steer(disk, law, BFQRange, 5, 24)
	// It keeps three hundredths of the disk, six hundredths of what is charged.
	if last := out.weights[23][1]; last > 800*8/100 || last < 800*4/100 {
		t.Errorf("the hog has weight %v", last)
	}
	// The others divide the rest by their ideals.
	var a, c float64
	for _, shares := range out.intervals[3:] {
		a += shares[0]
		c += shares[2]
	}
	if ratio := a / c; math.Abs(ratio-2) > 0.1 {
		t.Errorf("the others share %.2f : 1, want 2 : 1", ratio)
	}
	// Its load changes: there is no long repayment for what no weight could
	// prevent.
	hog.metadataRate = 0
	out = steer(disk, law, BFQRange, 5, 12)
	var late float64
	for _, shares := range out.intervals[6:] {
		late += shares[1] / 6
	}
	if math.Abs(late-0.25) > 0.05 {
		t.Errorf("half a minute after it stopped its share is %.3f, want 0.25", late)
	}
}

func TestAnIdleContainerKeepsItsIdealAndWakesToIt(t *testing.T) {
	sleeper := reader(300)
	sleeper.demand = -1
	disk := newSimDisk(5, 0.05, sleeper, reader(300), metadataWriter(300, 3e6))
	law := NewFeedback(BFQRange)
	out := steer(disk, law, BFQRange, 5, 12)
	for _, weights := range out.weights {
		if weights[0] != 300 {
			t.Fatalf("the idle container's weight is %v", weights[0])
		}
	}
	sleeper.demand = 0
	out = steer(disk, law, BFQRange, 5, 12)
	if worst := out.worstMean(disk.targets()); worst > 0.02 {
		t.Errorf("after it woke a mean share is %.3f from its target", worst)
	}
}

func TestContainersComeAndGo(t *testing.T) {
	law := NewFeedback(BFQRange)
	disk := newSimDisk(9, 0.05, reader(100), metadataWriter(100, 3e6), reader(100), reader(100))
	all := disk.containers
	for round := range 40 {
		disk.containers = all[:2+round%3]
		steer(disk, law, BFQRange, 5, 2)
	}
	if known := len(law.memory); known > 4 {
		t.Errorf("the law remembers %d containers", known)
	}
	disk.containers = all[:1]
	steer(disk, law, BFQRange, 5, 1)
	if known := len(law.memory); known != 1 {
		t.Errorf("the law remembers %d containers of 1", known)
	}
}

func TestShortAndLongIntervalsConvergeToo(t *testing.T) {
	for _, seconds := range []float64{1, 2, 5, 10, 30} {
		t.Run(fmt.Sprint(seconds, " s"), func(t *testing.T) {
			disk := newSimDisk(4, 0.05, reader(500), metadataWriter(500, 4e6))
			out := steer(disk, NewFeedback(BFQRange), BFQRange, seconds, 60)
			if worst := out.worstMean(disk.targets()); worst > 0.012 {
				t.Errorf("mean share is %.3f from its target", worst)
			}
		})
	}
}

// What a container did alone does not show how the scheduler answers weights.
func TestOneThatJoinsASingleOneHasItsShareAtOnce(t *testing.T) {
	law := NewFeedback(BFQRange)
	weights := []float64{500, 500}
	step := func(a, b float64) {
		copy(weights, law.Next(0.5, []Observation{
			{ID: "a", Ideal: 500, Weight: weights[0], OtherBytes: a},
			{ID: "b", Ideal: 500, Weight: weights[1], OtherBytes: b},
		}))
	}
	for range 120 {
		step(20e6, 0)
	}
	for n := range 20 {
		sum := weights[0] + weights[1]
		step(20e6*weights[0]/sum, 20e6*weights[1]/sum)
		if math.Abs(weights[1]-500) > 15 {
			t.Errorf("%.1f s after b joined a, its weight is %.0f; want 500", float64(n+1)/2, weights[1])
		}
	}
}

// Each of hundreds of containers has less of the disk than the dead band.
func TestHundredsOfContainersAreCorrected(t *testing.T) {
	const containers = 400
	var loads []*simContainer
	for n := range containers {
		loads = append(loads, &simContainer{ideal: 100, coupled: float64(n % 2)})
	}
	out := steer(newSimDisk(3, 0.02, loads...), NewFeedback(BFQRange), BFQRange, 5, 80)
	var share float64
	for _, shares := range out.intervals[40:] {
		for n := 1; n < containers; n += 2 {
			share += shares[n] / 40
		}
	}
	t.Logf("the half that logs has %.1f %%", 100*share)
	if math.Abs(share-0.5) > 0.02 {
		t.Errorf("the half that logs has %.1f %% of the disk; want 50", 100*share)
	}
}

// With the greatest weight at the end of the range the sum of the ideals is not reached, which is
// no reason to write each small change.
func TestTheDeadBandHoldsAtTheEndOfTheRange(t *testing.T) {
	disk := newSimDisk(6, 0.01, &simContainer{ideal: 1000}, &simContainer{ideal: 1000, metadataRate: 8e6})
	out := steer(disk, NewFeedback(BFQRange), BFQRange, 0.5, 300)
	written := 0
	for n := 101; n < len(out.weights); n++ {
		before, now := out.weights[n-1], out.weights[n]
		if now[0] == before[0] && now[1] == before[1] {
			continue
		}
		written++
		if moved := math.Abs(now[0]/(now[0]+now[1]) - before[0]/(before[0]+before[1])); moved < 0.002 {
			t.Errorf("step %d: %.0f instead of %.0f changes the shares by %.2f points", n, now, before, 100*moved)
		}
	}
	t.Logf("%d changes in 200 steps", written)
}
