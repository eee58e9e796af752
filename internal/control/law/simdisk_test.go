package law

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// simContainer is a load on the simulated disk.
type simContainer struct {
	ideal float64
	// metadataRate is journal bytes per second, whatever the weight. coupled is the
	// journal bytes per charged byte (a metadata load becomes slower with the reads
	// beside it).
	metadataRate, coupled float64
	// inPlace is the in-place metadata per journal byte. It is written in bursts,
	// every burst intervals (1: in each).
	inPlace float64
	burst   int
	// demand is the most charged bytes per second that it wants; 0 means all.
	demand float64
	// efficiency is the bytes per weight relative to the others; 0 means 1.
	efficiency float64

	pendingJournal, pendingMetadata float64
	weight                          float64
}

// simDisk is a disk under a proportional-share scheduler. The root cgroup's hidden
// I/O gets its part first (the journal of an interval is that of the last one). The
// rest is divided among those that want it, by weights, with noise. Like a real
// disk, it does not work more than the demands.
type simDisk struct {
	bytesPerSecond float64
	noise          float64 // standard deviation of the logarithm
	random         *rand.Rand
	containers     []*simContainer
	tick           int
}

func newSimDisk(seed uint64, noise float64, containers ...*simContainer) *simDisk {
	for _, c := range containers {
		c.weight = c.ideal
	}
	return &simDisk{bytesPerSecond: 40e6, noise: noise, containers: containers,
		random: rand.New(rand.NewPCG(seed, 1))}
}

// run simulates one interval and returns what a meter would report.
func (d *simDisk) run(seconds float64) []Observation {
	observations := make([]Observation, len(d.containers))
	left := d.bytesPerSecond * seconds
	for n, c := range d.containers {
		hidden := c.pendingJournal
		c.pendingJournal = 0
		if c.burst <= 1 || (d.tick+n)%c.burst == 0 {
			hidden += c.pendingMetadata
			c.pendingMetadata = 0
		}
		hidden = math.Min(hidden, left*0.95)
		left -= hidden
		observations[n] = Observation{ID: fmt.Sprint("c", n), Ideal: c.ideal, Weight: c.weight, JournalBytes: hidden}
	}
	claims := make([]Claim, len(d.containers))
	for n, c := range d.containers {
		efficiency := c.efficiency
		if efficiency == 0 {
			efficiency = 1
		}
		claims[n] = Claim{Ideal: c.weight * efficiency * math.Exp(d.noise*d.random.NormFloat64()), Most: math.Inf(1)}
		if c.demand > 0 {
			claims[n].Most = c.demand * seconds
		}
		if c.demand < 0 {
			claims[n].Most = 0
		}
	}
	for n, bytes := range Level(left, claims) {
		c := d.containers[n]
		observations[n].OtherBytes = math.Round(bytes)
		journal := c.metadataRate*seconds*math.Exp(d.noise*d.random.NormFloat64()) + c.coupled*bytes
		c.pendingJournal += journal
		c.pendingMetadata += journal * c.inPlace
	}
	d.tick++
	return observations
}

// outcome is the result of a run.
type outcome struct {
	mean      []float64   // share of all bytes
	intervals [][]float64 // shares by interval
	weights   [][]float64
	bytes     float64
}

// steer runs the disk under a law; nil means without control.
func steer(d *simDisk, law Law, r Range, seconds float64, intervals int) outcome {
	var out outcome
	sums := make([]float64, len(d.containers))
	for range intervals {
		observations := d.run(seconds)
		shares := make([]float64, len(observations))
		weights := make([]float64, len(observations))
		ids := make([]string, len(observations))
		var total float64
		for n, o := range observations {
			shares[n] = o.OtherBytes + o.JournalBytes
			sums[n] += shares[n]
			total += shares[n]
			ids[n] = o.ID
			weights[n] = o.Weight
		}
		for n := range shares {
			shares[n] /= total
		}
		out.bytes += total
		out.intervals = append(out.intervals, shares)
		out.weights = append(out.weights, weights)
		if law == nil {
			continue
		}
		for n, w := range Quantize(law.Next(seconds, observations), ids, r) {
			d.containers[n].weight = float64(w)
		}
	}
	for _, s := range sums {
		out.mean = append(out.mean, s/out.bytes)
	}
	return out
}

// targets are the containers' shares by their ideals.
func (d *simDisk) targets() []float64 {
	var sum float64
	for _, c := range d.containers {
		sum += c.ideal
	}
	targets := make([]float64, len(d.containers))
	for n, c := range d.containers {
		targets[n] = c.ideal / sum
	}
	return targets
}

// worstMean is the greatest distance of a mean share from its target.
func (o outcome) worstMean(targets []float64) (worst float64) {
	for n, share := range o.mean {
		worst = math.Max(worst, math.Abs(share-targets[n]))
	}
	return worst
}

// held is the part of the intervals after the third in which every share is within
// the tolerance of its target.
func (o outcome) held(targets []float64, tolerance float64) float64 {
	var good float64
	later := o.intervals[3:]
	for _, shares := range later {
		ok := 1.0
		for n, share := range shares {
			if math.Abs(share-targets[n]) > tolerance {
				ok = 0
			}
		}
		good += ok
	}
	return good / float64(len(later))
}

// unrest is the mean change of a weight from one interval to the next, as part
// of the sum of the weights, after the first ten.
func (o outcome) unrest() float64 {
	var moved, steps float64
	for t := 11; t < len(o.weights); t++ {
		var sum float64
		for _, w := range o.weights[t] {
			sum += w
		}
		for n, w := range o.weights[t] {
			moved += math.Abs(w-o.weights[t-1][n]) / sum
		}
		steps++
	}
	return moved / steps
}
