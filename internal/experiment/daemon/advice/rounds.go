package advice

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/pair"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/fio"
)

// roundsOf are the phases of an arrangement beside a neighbour, one of each round.
func roundsOf(p pair.Part, a fixture.Arrangement, n fio.Neighbour) []pair.Phase {
	var rounds []pair.Phase
	for _, phase := range p.Phases {
		if phase.Arrangement == a && phase.Neighbour == n {
			rounds = append(rounds, phase)
		}
	}
	return rounds
}

// joined is one phase of all rounds, as if they were one long measurement; nil if there
// is none. Its percentiles are the geometric means of the rounds with calls.
func joined(p pair.Part, a fixture.Arrangement, n fio.Neighbour) *pair.Phase {
	rounds := roundsOf(p, a, n)
	if len(rounds) == 0 {
		return nil
	}
	whole := pair.Phase{Arrangement: a, Neighbour: n, Rounds: len(rounds)}
	var done, synced float64
	for _, round := range rounds {
		whole.Seconds += round.Seconds
		done += round.Rate * round.Seconds
		synced += round.SyncA.MeanSeconds * float64(round.SyncA.Calls)
		whole.SyncA.Calls += round.SyncA.Calls
		whole.SyncA.DataOnly += round.SyncA.DataOnly
		whole.Samples = append(whole.Samples, sameDevice(round)...)
		whole.Requests = addRequests(whole.Requests, round.Requests)
		whole.Moves = addMoves(whole.Moves, round.Moves)
	}
	if whole.Seconds > 0 {
		whole.Rate = done / whole.Seconds
	}
	if whole.SyncA.Calls > 0 {
		whole.SyncA.MeanSeconds = synced / float64(whole.SyncA.Calls)
	}
	whole.SyncA.P50Seconds = geometricMean(rounds, func(p pair.Phase) float64 { return p.SyncA.P50Seconds })
	whole.SyncA.P99Seconds = geometricMean(rounds, func(p pair.Phase) float64 { return p.SyncA.P99Seconds })
	return &whole
}

// waiting is the cgroup of container A, and the device where its syncs take longest.
func waiting(p pair.Phase) (cgroup, device string) {
	var longest float64
	for _, s := range p.Samples {
		for _, w := range s.Waiters {
			if isLoadOf("A", w.Cgroup) && w.WaitSeconds >= longest {
				cgroup, device, longest = w.Cgroup, w.Device, w.WaitSeconds
			}
		}
	}
	return cgroup, device
}

// isLoadOf reports whether a cgroup is that of a container's processes.
func isLoadOf(container, cgroup string) bool {
	return strings.HasSuffix(cgroup, "/"+container+"/container")
}

// sameDevice are the samples with one name for the device: each round has a new disk. The
// cgroups of all rounds are of one process, and have the same names.
func sameDevice(p pair.Phase) []account.Sample {
	_, device := waiting(p)
	samples := slices.Clone(p.Samples)
	for n := range samples {
		samples[n].Waiters = slices.Clone(samples[n].Waiters)
		for i := range samples[n].Waiters {
			if w := &samples[n].Waiters[i]; w.Device == device {
				w.Device = "disk"
			}
		}
	}
	return samples
}

// addRequests adds sums of the same container and class.
func addRequests(all, more []pair.Requests) []pair.Requests {
	all = slices.Clone(all)
	for _, of := range more {
		at := slices.IndexFunc(all, func(d pair.Requests) bool { return d.Who == of.Who && d.Class == of.Class })
		if at < 0 {
			all = append(all, of)
			continue
		}
		all[at].Sums = all[at].Add(of.Sums)
	}
	return all
}

// addMoves adds moves between the same containers and classes.
func addMoves(all, more []pair.Moves) []pair.Moves {
	all = slices.Clone(all)
	for _, of := range more {
		same := func(d pair.Moves) bool { d.Moves = of.Moves; return d == of }
		if at := slices.IndexFunc(all, same); at >= 0 {
			all[at].Moves = all[at].Add(of.Moves)
		} else {
			all = append(all, of)
		}
	}
	return all
}

// geometricMean is that of the values above 0; 0 if there is none.
func geometricMean(rounds []pair.Phase, value func(pair.Phase) float64) float64 {
	var logs, count float64
	for _, round := range rounds {
		if v := value(round); v > 0 {
			logs, count = logs+math.Log(v), count+1
		}
	}
	if count == 0 {
		return 0
	}
	return math.Exp(logs / count)
}

// apart is the factor between the greatest and the least value of the rounds.
func apart(rounds []pair.Phase, value func(pair.Phase) float64) float64 {
	least, greatest := math.Inf(1), 0.0
	for _, round := range rounds {
		least, greatest = min(least, value(round)), max(greatest, value(round))
	}
	return off(greatest, least)
}

// repeatTable says how far rounds of the same measurement are apart. No prediction can
// be nearer to both. It has no rows if there was one round only.
func (r Result) repeatTable(set string) report.Table {
	t := report.Table{
		Title:   "Advise: the same measured again, " + set,
		Note:    fmt.Sprintf("Rounds of the same case, made in turn with the other arrangements. Within the bound: they are within a factor of %.1f of each other.", Bound),
		Columns: []string{"arrangement", "cases", "within the bound", "throughput alone", "p99 alone", "greatest factor, throughput", "p99"},
	}
	for _, a := range []fixture.Arrangement{fixture.SharedExt4, fixture.OnDevices, fixture.PlacedOnXFS} {
		var cases, both, rates, p99s int
		var worstRate, worstP99 float64
		for _, part := range r.Parts[set] {
			for _, n := range part.Neighbours() {
				rounds := roundsOf(part, a, n)
				if len(rounds) < 2 {
					continue
				}
				rate := apart(rounds, func(p pair.Phase) float64 { return p.Rate })
				p99 := apart(rounds, func(p pair.Phase) float64 { return p.SyncA.P99Seconds })
				cases++
				rates, p99s = rates+within(rate), p99s+within(p99)
				both += within(max(rate, p99))
				worstRate, worstP99 = max(worstRate, rate), max(worstP99, p99)
			}
		}
		if cases > 0 {
			t.Rows = append(t.Rows, []string{string(a), fmt.Sprint(cases), fmt.Sprint(both), fmt.Sprint(rates), fmt.Sprint(p99s), factorText(worstRate), factorText(worstP99)})
		}
	}
	return t
}

// within is 1 if a factor is within the bound, else 0.
func within(factor float64) int {
	if factor <= Bound {
		return 1
	}
	return 0
}

func factorText(factor float64) string {
	if math.IsInf(factor, 0) {
		return "– (nothing was done in one)"
	}
	return fmt.Sprintf("%.2f", factor)
}
