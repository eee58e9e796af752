package advice

import (
	"fmt"
	"math"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/advise"
	"github.com/daybook-project/daybook/internal/advise/survey"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/pair"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/fio"
)

// input is what advise would measure in a phase on the shared ext4.
func input(of pair.Case, p pair.Phase) advise.Input {
	var waiters []account.Waiter
	for _, s := range p.Samples {
		waiters = append(waiters, s.Waiters...)
	}
	cgroup, device := waiting(p)
	in := advise.Measured(waiters, cgroup, device, p.Seconds)
	for _, r := range p.Requests {
		survey.Count(&in, r.Class, r.Who == "A", r.Sums)
	}
	for _, m := range p.Moves {
		survey.CountMoves(&in, m.Class, m.Who == "A", m.BeforeClass, m.BeforeWho == "A", m.Moves)
	}
	in.Mode = advise.Ordered
	if of.DataMode == pair.Unwritten {
		in.Mode = advise.Unwritten
	}
	in.Rotational = pair.Rotational(of.Disk)
	in.SpanShare = pair.PartitionShare
	in.Share = survey.ShareOf(account.Sum(p.Samples), "A")
	return in
}

// comparison is one remedy in one case.
type comparison struct {
	set       string
	neighbour fio.Neighbour
	mode      pair.DataMode
	kind      advise.Kind
	calls     uint64
	// enough: advise predicts something.
	enough bool
	// gain and p99 are predicted, and measured.
	gain, p99                 advise.Range
	measuredGain, measuredP99 float64
	before                    pair.Phase
}

// Bound is the greatest factor by which a prediction may be off.
const Bound = 1.5

// off is the factor by which a prediction is off.
func off(predicted, measured float64) float64 {
	if !(predicted > 0) || !(measured > 0) {
		return math.Inf(1)
	}
	return max(predicted/measured, measured/predicted)
}

// holds reports whether throughput and p99 are near enough.
func (c comparison) holds() bool {
	return c.enough && off(c.gain.Median, c.measuredGain) <= Bound && off(c.p99.Median, c.measuredP99) <= Bound
}

// gainInRange and p99InRange report whether the range contains what was measured.
func (c comparison) gainInRange() bool { return c.enough && inRange(c.gain, c.measuredGain) }
func (c comparison) p99InRange() bool  { return c.enough && inRange(c.p99, c.measuredP99) }

func inRange(r advise.Range, measured float64) bool { return r.Low <= measured && measured <= r.High }

// compare lists what advise predicts from the shared ext4 beside what was measured.
func (r Result) compare(set string) ([]comparison, error) {
	var all []comparison
	for _, part := range r.Parts[set] {
		for _, n := range part.Neighbours() {
			compared, err := r.compareRemedies(set, part, n)
			if err != nil {
				return all, fmt.Errorf("%s beside %s: %w", part, n, err)
			}
			all = append(all, compared...)
		}
	}
	return all, nil
}

// compareRemedies is compare for one case; nothing if the shared ext4 was not measured.
func (r Result) compareRemedies(set string, part pair.Part, n fio.Neighbour) (all []comparison, err error) {
	shared := joined(part, fixture.SharedExt4, n)
	if shared == nil {
		return nil, nil
	}
	in := input(part.Case, *shared)
	predicted, err := advise.Predict(in)
	if err != nil {
		return nil, err
	}
	truths := map[advise.Kind]*pair.Phase{
		advise.DeviceVolume: joined(part, fixture.OnDevices, n),
		advise.ImageVolume:  joined(part, fixture.PlacedOnXFS, n),
	}
	if part.DataMode == pair.Ordered {
		truths[advise.MountOption] = r.sameUnwritten(set, part, n)
	}
	for _, remedy := range remedies {
		truth := truths[remedy.kind]
		if truth == nil {
			continue
		}
		c := comparison{set: set, neighbour: n, mode: part.DataMode, kind: remedy.kind, calls: in.Calls, before: *shared}
		c.measuredGain, c.measuredP99 = statistics.Ratio(truth.Rate, shared.Rate), truth.SyncA.P99Seconds
		for _, p := range predicted.Remedies {
			if p.Kind == remedy.kind {
				c.enough, c.gain, c.p99 = true, p.Gain, p.P99Seconds
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// sameUnwritten is the phase on the shared ext4 without ordered data.
func (r Result) sameUnwritten(set string, of pair.Part, n fio.Neighbour) *pair.Phase {
	for _, part := range r.Parts[set] {
		if part.Disk == of.Disk && part.Load == of.Load && part.DataMode == pair.Unwritten {
			return joined(part, fixture.SharedExt4, n)
		}
	}
	return nil
}

// WantedOfTen is how many of ten held-out cases must be within the bound.
const WantedOfTen = 8

// Check returns an error if too few of the held-out cases are within the bound, or if their
// measurement was interrupted.
func (r Result) Check() error {
	if got, asked := len(r.Parts[HeldOutSet]), r.Asked[HeldOutSet]; got < asked {
		return fmt.Errorf("advise: the measurement of the held-out cases was interrupted after %d of %d parts", got, asked)
	}
	all, err := r.compare(HeldOutSet)
	if err != nil {
		return err
	}
	cases, held := count(all, advise.DeviceVolume)
	if cases == 0 {
		return nil // not measured
	}
	if held*10 < WantedOfTen*cases {
		return fmt.Errorf("advise: %d of %d predictions for a volume on a device are within %.1fx; want %d of 10", held, cases, Bound, WantedOfTen)
	}
	return nil
}

// count counts the cases of a remedy, and those within the bound.
func count(all []comparison, kind advise.Kind) (cases, held int) {
	for _, c := range all {
		if c.kind != kind {
			continue
		}
		if cases++; c.holds() {
			held++
		}
	}
	return cases, held
}
