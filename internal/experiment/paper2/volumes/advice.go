package volumes

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/advise"
	"github.com/daybook-project/daybook/internal/advise/survey"
	"github.com/daybook-project/daybook/internal/disktime"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/fio"
)

// The sets of cases: the model of advise was tuned with the first. Its bound is for the
// second, and the third has another load. The second once had the slow disk; the model was
// then changed because of what was measured there, so it has another now.
const (
	TuningSet    = "tuning"
	HeldOutSet   = "held-out"
	OtherLoadSet = "other-load"
)

// AdviceSets lists all.
func AdviceSets() []string { return []string{TuningSet, HeldOutSet, OtherLoadSet} }

// Advice is what was measured to check the predictions of advise: each case on one
// shared ext4, and with volumes.
type Advice struct {
	Host report.Host `json:"host"`
	// Loads are the host's load averages of a minute at the beginning and the end, by
	// set.
	Loads map[string][2]string `json:"loads"`
	// Parts are by set.
	Parts map[string][]Part `json:"parts"`
}

// adviceParts are the cases of a set.
func adviceParts(set string) []plannedPart {
	disk, load := simulatedHDD, mariadbLoad
	switch set {
	case HeldOutSet:
		disk = quickHDD
	case OtherLoadSet:
		disk, load = quickHDD, smallLoad
	}
	var parts []plannedPart
	for _, mode := range DataModes() {
		parts = append(parts, plannedPart{disk, load, mode, allNeighbours()})
	}
	return parts
}

// AdviceOptions are those of a whole check, and of one that only shows that it works.
var (
	AdviceFull = Options{ // sharedSeconds is advise's default interval
		Seconds: 24, sharedSeconds: 30, Rounds: 2, Interval: 2 * time.Second, keepRounds: true,
		DataModes: DataModes(), Neighbours: allNeighbours(),
		Arrangements: []fixture.Arrangement{fixture.SharedExt4, fixture.OnDevices, fixture.PlacedOnXFS},
	}
	AdviceQuick = Options{
		Seconds: 4, Rounds: 1, Interval: 2 * time.Second,
		DataModes: []DataMode{Ordered}, Neighbours: []fio.Neighbour{fio.HighFsync},
		Arrangements: []fixture.Arrangement{fixture.SharedExt4, fixture.OnDevices},
	}
)

// MeasureAdvice measures the sets; kept has the parts of the others. It calls save after
// each part, so that an interrupted run loses only the part that it was measuring.
func MeasureAdvice(ctx context.Context, l fixture.Lab, o Options, sets []string, kept Advice, save func(Advice) error) (Advice, error) {
	result := Advice{Host: report.ThisHost(), Loads: kept.Loads, Parts: kept.Parts}
	if result.Parts == nil {
		result.Parts = make(map[string][]Part)
	}
	if result.Loads == nil {
		result.Loads = make(map[string][2]string)
	}
	if err := fixture.RemoveLeftovers(); err != nil {
		return result, err
	}
	o.waits = true
	rounds := o.Rounds
	for _, set := range sets {
		if o.Rounds = rounds; set != HeldOutSet {
			o.Rounds = 1 // only the bound needs to know how far repeated measurements are apart
		}
		if !slices.Contains(AdviceSets(), set) {
			return result, fmt.Errorf("no set %q: choose from %s", set, strings.Join(AdviceSets(), ", "))
		}
		result.Parts[set] = nil
		begin := loadAverage()
		for _, planned := range adviceParts(set) {
			if len(o.DataModes) == 1 && planned.mode != o.DataModes[0] {
				continue
			}
			part, err := runPart(ctx, l, o, planned, nil)
			if err != nil {
				return result, fmt.Errorf("%s: %w", planned, err)
			}
			result.Parts[set] = append(result.Parts[set], part)
			result.Loads[set] = [2]string{begin, loadAverage()}
			if err := save(result); err != nil {
				return result, err
			}
		}
	}
	return result, nil
}

// diskTime are the requests of the disk of a container and a class.
type diskTime struct {
	// Who is "A", "B", "root" or "none".
	Who   string         `json:"who"`
	Class disktime.Class `json:"class"`
	disktime.Sums
}

// diskMove are the moves of the disk's head to requests of a container and a class, after
// one of another.
type diskMove struct {
	Who         string         `json:"who"`
	Class       disktime.Class `json:"class"`
	BeforeWho   string         `json:"before_who"`
	BeforeClass disktime.Class `json:"before_class"`
	disktime.Moves
}

// diskTimes are those of the requests, and the moves between them.
type diskTimes struct {
	sums  map[diskTime]disktime.Sums
	moves map[diskMove]disktime.Moves
}

// diskTimes reads the times of the requests since the probe was opened; nothing without
// one.
func (s *pair) diskTimes(p *disktime.Probe) (diskTimes, error) {
	times := diskTimes{map[diskTime]disktime.Sums{}, map[diskMove]disktime.Moves{}}
	if p == nil {
		return times, nil
	}
	sums, err := p.Read(s.Disk.Device.Dev)
	if err != nil {
		return times, err
	}
	moves, err := p.Moves(s.Disk.Device.Dev)
	if err != nil {
		return times, err
	}
	names := map[uint64]string{0: "none"}
	for _, t := range s.containers() {
		for _, path := range []string{t.Parent, t.Load, t.Parent + "/journal"} {
			if c, err := s.Lab.Tree.Lookup(path); err == nil {
				names[c.ID] = t.Name
			}
		}
	}
	name := func(cgroup uint64) string { return cmp.Or(names[cgroup], "root") }
	for key, sum := range sums {
		of := diskTime{Who: name(key.Cgroup), Class: key.Class}
		times.sums[of] = times.sums[of].Add(sum)
	}
	for key, sum := range moves {
		of := diskMove{Who: name(key.Of.Cgroup), Class: key.Of.Class, BeforeWho: name(key.Before.Cgroup), BeforeClass: key.Before.Class}
		times.moves[of] = times.moves[of].Add(sum)
	}
	return times, nil
}

// since returns what was added after an earlier reading.
func (t diskTimes) since(before diskTimes) (requests []diskTime, moves []diskMove) {
	for of, sum := range t.sums {
		of.Sums = sum.Less(before.sums[of])
		requests = append(requests, of)
	}
	for of, sum := range t.moves {
		of.Moves = sum.Less(before.moves[of])
		moves = append(moves, of)
	}
	return requests, moves
}

// adviceInput is what advise would measure in a phase on the shared ext4.
func (p Phase) adviceInput(disk string, mode DataMode) advise.Input {
	var waiters []account.Waiter
	for _, s := range p.Samples {
		waiters = append(waiters, s.Waiters...)
	}
	cgroup, device := p.waiting()
	in := advise.Measured(waiters, cgroup, device, p.Seconds)
	for _, r := range p.Requests {
		survey.Count(&in, r.Class, r.Who == "A", r.Sums)
	}
	for _, m := range p.Moves {
		survey.CountMoves(&in, m.Class, m.Who == "A", m.BeforeClass, m.BeforeWho == "A", m.Moves)
	}
	in.Mode = advise.Ordered
	if mode == Unwritten {
		in.Mode = advise.Unwritten
	}
	in.Rotational = modelOf(disk).Rotational
	in.SpanShare = float64(partitionBytes) / diskBytes
	in.Share = survey.ShareOf(account.Sum(p.Samples), "A")
	return in
}

// comparison is one remedy in one case.
type comparison struct {
	set       string
	neighbour fio.Neighbour
	mode      DataMode
	kind      advise.Kind
	calls     uint64
	// enough: advise predicts something.
	enough bool
	// gain and p99 are predicted, and measured.
	gain, p99                 advise.Range
	measuredGain, measuredP99 float64
	before                    Phase
}

// AdviceBound is the greatest factor by which a prediction may be off.
const AdviceBound = 1.5

// off is the factor by which a prediction is off.
func off(predicted, measured float64) float64 {
	if !(predicted > 0) || !(measured > 0) {
		return math.Inf(1)
	}
	return max(predicted/measured, measured/predicted)
}

// holds reports whether throughput and p99 are near enough.
func (c comparison) holds() bool {
	return c.enough && off(c.gain.Median, c.measuredGain) <= AdviceBound && off(c.p99.Median, c.measuredP99) <= AdviceBound
}

// gainInRange and p99InRange report whether the range contains what was measured.
func (c comparison) gainInRange() bool { return c.enough && inRange(c.gain, c.measuredGain) }
func (c comparison) p99InRange() bool  { return c.enough && inRange(c.p99, c.measuredP99) }

func inRange(r advise.Range, measured float64) bool { return r.Low <= measured && measured <= r.High }

// compare lists what advise predicts from the shared ext4 beside what was measured.
func (r Advice) compare(set string) ([]comparison, error) {
	var all []comparison
	for _, part := range r.Parts[set] {
		for _, n := range part.neighbours() {
			shared := part.joined(fixture.SharedExt4, n)
			if shared == nil {
				continue
			}
			in := shared.adviceInput(part.Disk, part.DataMode)
			advice, err := advise.Predict(in)
			if err != nil {
				return all, fmt.Errorf("%s beside %s: %w", part.title(), n, err)
			}
			truths := map[advise.Kind]*Phase{
				advise.DeviceVolume: part.joined(fixture.OnDevices, n),
				advise.ImageVolume:  part.joined(fixture.PlacedOnXFS, n),
			}
			if part.DataMode == Ordered {
				truths[advise.MountOption] = r.sameUnwritten(set, part, n)
			}
			for _, kind := range []advise.Kind{advise.DeviceVolume, advise.ImageVolume, advise.MountOption} {
				truth := truths[kind]
				if truth == nil {
					continue
				}
				c := comparison{set: set, neighbour: n, mode: part.DataMode, kind: kind, calls: in.Calls, before: *shared}
				c.measuredGain, c.measuredP99 = ratio(truth.Rate, shared.Rate), truth.SyncA.P99Seconds
				for _, remedy := range advice.Remedies {
					if remedy.Kind == kind {
						c.enough, c.gain, c.p99 = true, remedy.Gain, remedy.P99Seconds
					}
				}
				all = append(all, c)
			}
		}
	}
	return all, nil
}

// sameUnwritten is the phase on the shared ext4 without ordered data.
func (r Advice) sameUnwritten(set string, of Part, n fio.Neighbour) *Phase {
	for _, part := range r.Parts[set] {
		if part.Disk == of.Disk && part.Load == of.Load && part.DataMode == Unwritten {
			return part.joined(fixture.SharedExt4, n)
		}
	}
	return nil
}

// AdviceCases is how many of the held-out cases must be within the bound.
const AdviceCases = 8

// Check returns an error if too few of the held-out cases are within the bound.
func (r Advice) Check() error {
	all, err := r.compare(HeldOutSet)
	if err != nil {
		return err
	}
	cases, held := count(all, advise.DeviceVolume)
	if cases == 0 {
		return nil // not measured
	}
	if held*10 < AdviceCases*cases {
		return fmt.Errorf("advise: %d of %d predictions for a volume on a device are within %.1fx; want %d of 10", held, cases, AdviceBound, AdviceCases)
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

// isLoadOf reports whether a cgroup is that of a container's processes.
func isLoadOf(container, cgroup string) bool {
	return strings.HasSuffix(cgroup, "/"+container+"/container")
}

// loadAverage is the host's load average of the last minute.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
