package law

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// queueDisk serves requests in the order of their arrival: a container with more of
// them outstanding gets more, whatever its weight, up to its limit. A scheduler
// without weights does the same.
type queueDisk struct {
	bytesPerSecond float64
	containers     []*queueContainer
}

type queueContainer struct {
	ideal float64
	// depth is the number of requests that it keeps outstanding; 0 means idle.
	depth float64
	// demand is the most bytes per second that it wants; 0 means all.
	demand float64
	// busy means that it always has a request outstanding, also when it gets all
	// that it wants.
	busy bool
	// flushes is the part of the time that it waits for flushes instead of requests.
	flushes float64
	// oneByOne is what it can do if the others use a part of the disk, in bytes per second:
	// each of its requests waits for theirs.
	oneByOne func(othersPart float64) float64
	// hidden is its journal in bytes per second, to which no limit applies.
	hidden float64
	limit  float64
}

func (d *queueDisk) run(seconds float64) []Observation {
	left := d.bytesPerSecond
	for _, c := range d.containers {
		left -= c.hidden
	}
	claims := make([]Claim, len(d.containers))
	for n, c := range d.containers {
		claims[n] = Claim{Ideal: c.depth, Most: math.Inf(1)}
		if c.limit > 0 {
			claims[n].Most = c.limit
		}
		if c.demand > 0 {
			claims[n].Most = math.Min(claims[n].Most, c.demand)
		}
		if c.depth == 0 {
			claims[n].Ideal, claims[n].Most = 1e-9, 0
		}
	}
	for n, c := range d.containers {
		if c.oneByOne == nil {
			continue
		}
		claims[n].Most = 0
		var others float64
		for k, rate := range Level(left, claims) {
			others += math.Min(rate, claims[k].Most)
		}
		claims[n].Most = c.oneByOne(math.Min(others/left, 0.99))
		claims[n].Ideal = 1e9 // the disk serves each of its few requests
	}
	observations := make([]Observation, len(d.containers))
	for n, rate := range Level(left, claims) {
		c := d.containers[n]
		o := Observation{ID: fmt.Sprint("c", n), Ideal: c.ideal, Weight: 1,
			OtherBytes: math.Min(rate, claims[n].Most) * seconds, JournalBytes: c.hidden * seconds}
		switch {
		case c.depth == 0:
		case c.busy || c.flushes > 0:
			o.BusySeconds, o.FlushSeconds = (1-c.flushes)*seconds, c.flushes*seconds
		case c.demand > 0 && rate >= c.demand*0.999:
			o.BusySeconds = 0.3 * seconds // it pauses
		case c.limit > 0 && rate >= c.limit*0.999:
			o.BusySeconds = 0.4 * seconds // it waits for the limit, not for the disk
		default:
			o.BusySeconds = seconds
		}
		observations[n] = o
	}
	return observations
}

// limitBy runs the disk under the law and returns each container's share of all
// bytes, and the bytes per second, over the steps after warmUp.
func limitBy(d *queueDisk, law *LimitLaw, warmUp, steps int) (shares []float64, rate float64) {
	const seconds = 0.5
	shares = make([]float64, len(d.containers))
	var total float64
	for step := range warmUp + steps {
		observations := d.run(seconds)
		for n, limit := range law.Next(seconds, observations) {
			d.containers[n].limit = limit
		}
		if step < warmUp {
			continue
		}
		for n, o := range observations {
			shares[n] += o.OtherBytes + o.JournalBytes
			total += o.OtherBytes + o.JournalBytes
		}
	}
	for n := range shares {
		shares[n] /= total
	}
	return shares, total / (float64(steps) * seconds)
}

func TestLimitsHoldSharesWhereTheDeepestQueueWouldWin(t *testing.T) {
	for _, test := range []struct {
		name       string
		containers []*queueContainer
		want       []float64
	}{
		{"alike", []*queueContainer{{ideal: 500, depth: 8}, {ideal: 300, depth: 8}, {ideal: 200, depth: 8}}, []float64{0.5, 0.3, 0.2}},
		{"the least has the deepest queue", []*queueContainer{{ideal: 500, depth: 1}, {ideal: 300, depth: 8}, {ideal: 200, depth: 32}}, []float64{0.5, 0.3, 0.2}},
		{"four", []*queueContainer{{ideal: 40, depth: 4}, {ideal: 30, depth: 32}, {ideal: 20, depth: 1}, {ideal: 10, depth: 8}}, []float64{0.4, 0.3, 0.2, 0.1}},
		{"a journal counts", []*queueContainer{{ideal: 50, depth: 8}, {ideal: 50, depth: 8, hidden: 12e6}}, []float64{0.5, 0.5}},
		{"one that does not use its share", []*queueContainer{{ideal: 500, depth: 1, demand: 4e6}, {ideal: 300, depth: 8}, {ideal: 200, depth: 8}}, []float64{0.1, 0.54, 0.36}},
		{"one whose requests come one after the other", []*queueContainer{{ideal: 500, depth: 1, demand: 4e6, busy: true}, {ideal: 300, depth: 8}, {ideal: 200, depth: 8}}, []float64{0.1, 0.54, 0.36}},
		{"beside one other", []*queueContainer{{ideal: 50, depth: 1, demand: 2e6, busy: true}, {ideal: 50, depth: 32}}, []float64{0.05, 0.95}},
		{"one that waits for flushes", []*queueContainer{{ideal: 500, depth: 16}, {ideal: 300, depth: 8}, {ideal: 200, depth: 1, flushes: 0.46}}, []float64{0.5, 0.3, 0.2}},
		{"one that waits for flushes and for nothing else", []*queueContainer{{ideal: 500, depth: 1, demand: 4e6, busy: true, flushes: 0.9}, {ideal: 300, depth: 8}, {ideal: 200, depth: 8}}, []float64{0.1, 0.54, 0.36}},
		{"one that is starved without limits", []*queueContainer{{ideal: 500, depth: 0.1}, {ideal: 300, depth: 32}, {ideal: 200, depth: 32}}, []float64{0.5, 0.3, 0.2}},
		{"one that is idle", []*queueContainer{{ideal: 500}, {ideal: 300, depth: 8}, {ideal: 200, depth: 8}}, []float64{0, 0.6, 0.4}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := &queueDisk{bytesPerSecond: 40e6, containers: test.containers}
			shares, rate := limitBy(d, NewLimitLaw(), 40, 120)
			for n, want := range test.want {
				if math.Abs(shares[n]-want) > 0.02 {
					t.Errorf("container %d: share %.3f; want %.3f", n, shares[n], want)
				}
			}
			least := 0.95
			for _, c := range test.containers {
				if c.busy { // the law must find out by trying what it leaves
					least = 0.9
				}
			}
			if rate < least*d.bytesPerSecond {
				t.Errorf("the disk did %.1f of %.1f MB/s", rate/1e6, d.bytesPerSecond/1e6)
			}
		})
	}
}

// The law does not know what the disk can do: it must find out, in both directions.
func TestLimitsFollowTheDisk(t *testing.T) {
	for _, later := range []float64{10e6, 160e6} {
		d := &queueDisk{bytesPerSecond: 40e6, containers: []*queueContainer{{ideal: 500, depth: 8}, {ideal: 300, depth: 8}, {ideal: 200, depth: 8}}}
		law := NewLimitLaw()
		limitBy(d, law, 40, 1)
		d.bytesPerSecond = later
		shares, rate := limitBy(d, law, 40, 60)
		if math.Abs(shares[0]-0.5) > 0.02 || math.Abs(shares[1]-0.3) > 0.02 || rate < 0.98*later {
			t.Errorf("after a change to %.0f MB/s: shares %.3f, %.1f MB/s", later/1e6, shares, rate/1e6)
		}
	}
}

// What one container leaves is used within two seconds, and returned as fast.
func TestWhatAnIdleSiblingLeavesIsUsedAtOnce(t *testing.T) {
	containers := []*queueContainer{{ideal: 500, depth: 8}, {ideal: 300, depth: 8}, {ideal: 200, depth: 8}}
	d := &queueDisk{bytesPerSecond: 40e6, containers: containers}
	law := NewLimitLaw()
	limitBy(d, law, 40, 1)
	for n := range containers {
		containers[n].depth = 0
		if _, rate := limitBy(d, law, 4, 10); rate < 0.98*d.bytesPerSecond {
			t.Errorf("without container %d the disk did %.1f of %.1f MB/s", n, rate/1e6, d.bytesPerSecond/1e6)
		}
		containers[n].depth = 8
		limitBy(d, law, 20, 1)
		if shares, _ := limitBy(d, law, 20, 40); math.Abs(shares[n]-containers[n].ideal/1000) > 0.02 {
			t.Errorf("container %d woke and got %.3f; want %.3f", n, shares[n], containers[n].ideal/1000)
		}
	}
}

func TestNoContainerIsLimitedAlone(t *testing.T) {
	law := NewLimitLaw()
	for _, containers := range [][]*queueContainer{
		{{ideal: 500, depth: 8}},
		{{ideal: 500, depth: 8}, {ideal: 500}},
		{{ideal: 500, depth: 1, demand: 1e6}, {ideal: 500, depth: 1, demand: 1e6}},
	} {
		d := &queueDisk{bytesPerSecond: 40e6, containers: containers}
		limitBy(d, law, 20, 1)
		for n, c := range containers {
			if c.limit != 0 {
				t.Errorf("container %d of %d has the limit %.0f", n, len(containers), c.limit)
			}
		}
	}
}

func TestNoLimitFromNonsense(t *testing.T) {
	law := NewLimitLaw()
	bad := []Observation{
		{ID: "a", Ideal: 1, Weight: 1, OtherBytes: math.NaN()}, {ID: "b", Ideal: 1, Weight: 1, OtherBytes: -1},
		{ID: "c", Ideal: 1, Weight: 1, OtherBytes: 1e9, BusySeconds: math.Inf(1)}, {ID: "d"},
	}
	for _, seconds := range []float64{0, -1, math.NaN(), math.Inf(1), 0.5, 5} {
		for n, limit := range law.Next(seconds, bad) {
			if limit != 0 {
				t.Errorf("%v s: %s is limited to %v", seconds, bad[n].ID, limit)
			}
		}
	}
}

// A container whose requests come one after the other, each of which waits for a flush and for
// what others have in the queue, has a greater rate the less the others do. Its share of the bytes
// is out of reach. The others then have about their share of the disk, and not what is left if
// that container waits for nobody.
func TestAContainerThatCannotHaveItsShareLeavesTheOthersTheirs(t *testing.T) {
	d := &queueDisk{bytesPerSecond: 100e6, containers: []*queueContainer{
		{ideal: 700, depth: 1, busy: true, oneByOne: func(part float64) float64 { return 4096 / (0.006 + 0.007*part/(1-part)) }},
		{ideal: 200, depth: 8}, {ideal: 100, depth: 8},
	}}
	shares, rate := limitBy(d, NewLimitLaw(), 120, 240)
	t.Logf("%.1f MB/s, shares %.3f", rate/1e6, shares)
	if rate < 20e6 || rate > 60e6 {
		t.Errorf("all do %.1f MB/s of 100; want some 30", rate/1e6)
	}
	if ratio := shares[1] / shares[2]; math.Abs(ratio-2) > 0.1 {
		t.Errorf("the others' shares are %.3f and %.3f; want 2 to 1", shares[1], shares[2])
	}
	alone, beside := 4096/0.006, shares[0]*rate
	if beside < 0.5*alone {
		t.Errorf("it does %.2f MB/s, and %.2f alone; want half of that or more", beside/1e6, alone/1e6)
	}
}

// A container that reads at random beside two that stream has all of the disk's time if it has
// half of the bytes, and all together then do a sixth of what the disk can. Its rate is noisy, so
// that the best time seems better than it was.
func TestAContainerThatSeeksLeavesTheOthersTime(t *testing.T) {
	for _, test := range []struct {
		name string
		// change is what happens in a step; speed is a factor of what the container can do.
		change func(step int, d *queueDisk, speed *float64)
		// all and own are the rates of all and of the container, in MB/s.
		leastAll, mostAll, leastOwn float64
	}{
		{"nothing changes", func(int, *queueDisk, *float64) {}, 14, 24, 0.8},
		{"the journal comes in bursts", func(step int, d *queueDisk, _ *float64) {
			d.containers[2].hidden = 0
			if step%10 == 0 {
				d.containers[2].hidden = 4e6
			}
		}, 12, 24, 0.8},
		{"it was slow before", func(step int, _ *queueDisk, speed *float64) {
			*speed = 1
			if step >= 40 && step < 80 {
				*speed = 0.25
			}
		}, 14, 27, 0.7},
		{"another one does a little now and then", func(step int, d *queueDisk, _ *float64) {
			d.containers[3].depth = 0
			if step%30 == 0 {
				d.containers[3].depth = 1
			}
		}, 14, 24, 0.9},
	} {
		t.Run(test.name, func(t *testing.T) {
			const before, steps = 120, 1200
			all, own := besideASeeker(rand.New(rand.NewPCG(1, 2)), 0.15, 0, before, steps, test.change)
			t.Logf("%.1f MB/s, %.2f of it its own", all, own)
			if all < test.leastAll || all > test.mostAll {
				t.Errorf("all do %.1f MB/s; want %.0f to %.0f, and half of the disk's time is 19", all, test.leastAll, test.mostAll)
			}
			if own < test.leastOwn {
				t.Errorf("it does %.2f MB/s; want %.1f or more, and half of the time is 1.1", own, test.leastOwn)
			}
		})
	}
}

// besideASeeker runs a container that reads at random with others, and returns what all do, and
// it, in MB/s, in the steps after those before. The rate of each step is off by up to that part.
// If stops is not 0, the disk stops for half a second after that many steps.
func besideASeeker(noise *rand.Rand, off float64, stops, before, steps int, change func(step int, d *queueDisk, speed *float64)) (all, own float64) {
	speed := 1.0
	d := &queueDisk{bytesPerSecond: 37e6, containers: []*queueContainer{
		{ideal: 500, depth: 8, busy: true, oneByOne: func(part float64) float64 {
			return speed * 2.2e6 * (1 - part) * (1 - off + 2*off*noise.Float64())
		}},
		{ideal: 300, depth: 8}, {ideal: 200, depth: 8}, {ideal: 50, demand: 1e6},
	}}
	law := NewLimitLaw()
	for step := range before + steps {
		change(step, d, &speed)
		if stops > 0 && step%stops == 0 {
			stalled(d, law, 0)
		}
		shares, rate := limitBy(d, law, 0, 1)
		if step >= before {
			all += rate / float64(steps) / 1e6
			own += shares[0] * rate / float64(steps) / 1e6
		}
	}
	return all, own
}

// A slow container whose rate is noisy, as of one that calls fsync, is still found to be saturated.
func TestANoisySeekerLeavesTheOthersTime(t *testing.T) {
	const runs = 20
	var mean float64
	for seed := range uint64(runs) {
		all, _ := besideASeeker(rand.New(rand.NewPCG(seed+1, 2)), 0.4, 0, 120, 600, func(_ int, _ *queueDisk, speed *float64) { *speed = 0.1 })
		mean += all / runs
	}
	t.Logf("all do %.1f MB/s in the mean of %d runs", mean, runs)
	if mean < 6 { // if any rate above its own ended the saturation, 3
		t.Errorf("all do %.1f MB/s in the mean of %d runs; want 6 or more, and half of the disk's time is 19", mean, runs)
	}
}

// What a container can do changes while the law checks whether it is saturated, so that the check
// finds nothing. The law must not rest where all do a tenth of what the disk can.
func TestLimitsThatWasteTheDiskAreTriedAgain(t *testing.T) {
	for _, test := range []struct {
		name   string
		stops  int
		isSlow func(step int) bool
	}{
		{"once", 0, func(step int) bool { return step >= 40 && step < 80 }},
		{"again and again", 0, func(step int) bool { return step%200 < 60 }},
		{"once, and commits stop the disk", 10, func(step int) bool { return step >= 40 && step < 80 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			const runs = 60
			var mean, least float64
			for seed := range uint64(runs) {
				all, _ := besideASeeker(rand.New(rand.NewPCG(seed+1, 2)), 0.15, test.stops, 120, 1200, func(step int, _ *queueDisk, speed *float64) {
					if *speed = 1; test.isSlow(step) {
						*speed = 0.27
					}
				})
				mean += all / runs
				if seed == 0 || all < least {
					least = all
				}
			}
			t.Logf("all do %.1f MB/s in the mean of %d runs, and %.1f in the worst", mean, runs, least)
			if least < 6 || mean < 12 { // without trials, some 4 and 5 to 8
				t.Errorf("all do %.1f MB/s in the worst run, %.1f in the mean; want 6 and 12 or more", least, mean)
			}
		})
	}
}

// What a container logs is a part of its share.
func TestAJournalOfItsOwnIsNotOutOfReach(t *testing.T) {
	d := &queueDisk{bytesPerSecond: 40e6, containers: []*queueContainer{
		{ideal: 300, depth: 1, demand: 7e6, busy: true, hidden: 4e6}, {ideal: 400, depth: 8}, {ideal: 300, depth: 8},
	}}
	law := NewLimitLaw()
	for range 240 {
		limitBy(d, law, 0, 1)
		if b, ok := law.OutOfReach(); ok {
			t.Fatalf("%+v; it has nine tenths of its share", b)
		}
	}
}

// Where another's writes fill the disk's queue, the requests of a reader end seconds after they
// began, some at a time. It waits all that time, although nothing of it ends in many steps. This
// is what a disk of 39 MB/s without a scheduler did for half a minute, in steps of half a second,
// while limits let the writer have all but what the reader had.
func TestAContainerWhoseRequestsTakeSecondsWantsMore(t *testing.T) {
	const seconds = 0.5
	steps := []struct{ read, busy float64 }{ // of the reader, in MB/s and as a part of the step
		{0, 0}, {2.1, 0.42}, {2.1, 1.8}, {0, 0}, {2.1, 1.87}, {0, 0}, {2.9, 1.9}, {2.1, 1.13}, {0, 0}, {0, 0},
		{2.1, 2.57}, {2.1, 1.19}, {0, 0}, {0, 0}, {3.9, 2.99}, {0, 0}, {0.5, 2.47}, {3.7, 0.09}, {0, 0}, {1, 2.91},
		{1, 0.03}, {2.1, 1.07}, {0, 0}, {2.1, 2.56}, {0, 0}, {0, 0}, {4.2, 3}, {0, 0}, {0, 0}, {3.7, 2.45},
		{0, 0}, {0, 0}, {2.1, 3.03}, {2.1, 1.65}, {0, 0}, {2.1, 1.87}, {0.3, 1.16}, {3.6, 0.42}, {4.2, 1.06}, {4.7, 1.6},
	}
	law := NewLimitLaw()
	var limits []float64
	for _, s := range steps {
		limits = law.Next(seconds, []Observation{
			{ID: "writer", Ideal: 500, Weight: 1, OtherBytes: (39 - s.read) * 1e6 * seconds, BusySeconds: seconds},
			{ID: "reader", Ideal: 500, Weight: 1, OtherBytes: s.read * 1e6 * seconds, BusySeconds: s.busy * seconds},
		})
	}
	if limits[0] == 0 || limits[0] > 30e6 || limits[1] != 0 {
		t.Errorf("after %.0f s the limits of the writer and of the reader are %.1f and %.1f MB/s; want at most 30, and none", seconds*float64(len(steps)), limits[0]/1e6, limits[1]/1e6)
	}
}

// A container that does I/O now and then does not keep a saturated one from being found, also if
// it does as much in a step as its limit allows. So the third one has what the others leave.
func TestBurstsOfAContainerLeaveTheDiskToTheOthers(t *testing.T) {
	for _, c := range []struct{ on, off int }{{1, 3}, {1, 5}, {2, 4}} {
		bursts := &queueContainer{ideal: 200, hidden: 1e6}
		d := &queueDisk{bytesPerSecond: 40e6, containers: []*queueContainer{{ideal: 500, depth: 1, demand: 4e6, busy: true}, {ideal: 300, depth: 8}, bursts}}
		law := NewLimitLaw()
		var all float64
		const warmUp, steps = 120, 480
		for step := range warmUp + steps {
			if bursts.depth = 0; step%(c.on+c.off) < c.on {
				bursts.depth = 8
			}
			_, rate := limitBy(d, law, 0, 1)
			if step >= warmUp {
				all += rate / steps
			}
		}
		t.Logf("%d of %d steps: %.1f MB/s", c.on, c.on+c.off, all/1e6)
		if all < 34e6 { // if such a step counts as wanting more, 6 to 7 MB/s
			t.Errorf("%d of %d steps: all do %.1f MB/s; want at least 34", c.on, c.on+c.off, all/1e6)
		}
	}
}

// Limits take over because one lacked its share for seconds. It has no limit at first, whatever the
// first step shows: that may be a burst, in which nobody seems to wait, or the moment after it.
func TestTheOneThatLackedHasNoLimitAtFirst(t *testing.T) {
	step := func(a, b, hidden, busySeconds float64) []Observation {
		return []Observation{
			{ID: "a", Ideal: 500, Weight: 900, OtherBytes: a, BusySeconds: busySeconds, RequestSeconds: busySeconds},
			{ID: "b", Ideal: 500, Weight: 100, OtherBytes: b, JournalBytes: hidden, WritebackBytes: hidden, BusySeconds: busySeconds, RequestSeconds: busySeconds},
		}
	}
	for name, first := range map[string][]Observation{"in a burst": step(0.1e6, 0.1e6, 6e6, 0.02), "after a burst": step(3e6, 2.5e6, 0, 0.5), "no request ends": step(0, 0, 12e6, 0)} {
		weights := NewFeedback(BFQRange)
		for n := range 20 {
			hidden := 0.0
			if n%10 == 0 {
				hidden = 18e6 // 27 % of what all do
			}
			weights.Next(0.5, step(2.9e6, 1.9e6, hidden, 0.5)) // whatever the weights are
		}
		law := weights.Limits()
		if limits := law.Next(0.5, first); law.free != "a" || limits[0] != 0 || limits[1] == 0 {
			t.Errorf("%s: without a limit is %q, and the limits are %.0f; want a, and one for b", name, law.free, limits)
		}
	}
}
