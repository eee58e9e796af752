package nvjournal

import (
	"slices"

	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// Machine is one round of the measurements that calibrate the contention model, ns.
type Machine struct {
	Round             int     `json:"round"`
	AddAlone          float64 `json:"add_alone_ns"`
	AddContended      float64 `json:"add_contended_ns"`
	LineTransfer      float64 `json:"line_transfer_ns"`
	LockAlone         float64 `json:"lock_alone_ns"`
	LockContended     float64 `json:"lock_contended_ns"`
	LockHeldAlone     float64 `json:"lock_held_alone_ns"`
	LockHeldContended float64 `json:"lock_held_contended_ns"`
	Way
}

// Calibration is the result of the rounds in one state.
type Calibration struct {
	State             State             `json:"state"`
	Rounds            int               `json:"rounds"`
	AddAlone          statistics.Spread `json:"add_alone_ns"`
	AddContended      statistics.Spread `json:"add_contended_ns"`
	LineTransfer      statistics.Spread `json:"line_transfer_ns"`
	LockAlone         statistics.Spread `json:"lock_alone_ns"`
	LockContended     statistics.Spread `json:"lock_contended_ns"`
	LockHeldAlone     statistics.Spread `json:"lock_held_alone_ns"`
	LockHeldContended statistics.Spread `json:"lock_held_contended_ns"`
}

// calibrations sets the state of each round and combines the rounds of each state.
func calibrations(rounds []Machine, bound float64) (all []Calibration) {
	for k := range rounds {
		rounds[k].tag(bound)
	}
	for _, state := range states {
		of := slices.DeleteFunc(slices.Clone(rounds), func(m Machine) bool { return m.State != state })
		if len(of) == 0 {
			continue
		}
		spread := func(value func(m Machine) float64) statistics.Spread {
			var values []float64
			for _, m := range of {
				values = append(values, value(m))
			}
			return statistics.SpreadOf(values)
		}
		all = append(all, Calibration{
			State: state, Rounds: len(of),
			AddAlone:          spread(func(m Machine) float64 { return m.AddAlone }),
			AddContended:      spread(func(m Machine) float64 { return m.AddContended }),
			LineTransfer:      spread(func(m Machine) float64 { return m.LineTransfer }),
			LockAlone:         spread(func(m Machine) float64 { return m.LockAlone }),
			LockContended:     spread(func(m Machine) float64 { return m.LockContended }),
			LockHeldAlone:     spread(func(m Machine) float64 { return m.LockHeldAlone }),
			LockHeldContended: spread(func(m Machine) float64 { return m.LockHeldContended }),
		})
	}
	return all
}

// Model predicts the rate of updates of 256 bytes for more cores than the machine has,
// with processors in one state. It is a model, not a measurement. Each core is a customer
// of a closed network: it thinks (its own work) and queues at stations that serve one core
// at a time (the lock, or the line of a ring's head). The throughput comes from exact mean
// value analysis (Reiser and Lavenberg, 1980). The model leaves out the memory's
// bandwidth, the distance of sockets, locks of callers, and commits.
type Model struct {
	State State       `json:"state"`
	Cores []int       `json:"cores"`
	Lines []ModelLine `json:"lines"`
}

// ModelLine is one engine.
type ModelLine struct {
	Engine     string `json:"engine"`
	Partitions int    `json:"partitions"`
	// UpdatesPerSecond at each number of cores.
	UpdatesPerSecond []float64 `json:"updates_per_second"`
	// Measured has the rates of one and two threads. ErrorAtTwo is the error of the
	// prediction for two threads, as a ratio minus 1. For one thread the calibration
	// makes the prediction exact.
	Measured       [2]float64 `json:"measured"`
	ErrorAtTwo     float64    `json:"error_at_two"`
	ThinkNs        float64    `json:"think_ns"`
	ServiceNs      float64    `json:"service_ns"`
	ContendedExtra float64    `json:"contended_extra_ns"`
}

const mostCores = 64

// contention calibrates the model with measurements in the same state:
//   - one lock: all work is under the lock, except for the change of the caller's image.
//     A core that takes the lock from another core needs additional time: the measured
//     difference between two threads and one, for a lock that is held as long.
//   - nvjournal: one addition to the head of a ring. If another core had the line last,
//     the addition takes the time of a transfer instead. The line with the record's flag
//     also takes a transfer, without a queue, because it has flags of other records.
func contention(floor []Update, m Calibration) Model {
	n := Result{Floor: floor}
	change := n.update("change", 0).One.Median
	handOver := max(0, m.LockHeldContended.Median-m.LockHeldAlone.Median)
	add, transfer := m.AddAlone.Median, m.LineTransfer.Median
	model := Model{State: m.State}
	for cores := 1; cores <= mostCores; cores *= 2 {
		model.Cores = append(model.Cores, cores)
	}
	for _, subject := range []struct {
		engine     string
		partitions int
	}{{"one-lock", 1}, {"nvjournal", 1}, {"nvjournal", 8}} {
		u := n.update(subject.engine, subject.partitions)
		alone, two := u.One.Median, u.two(m.State)
		if alone <= 0 || two.Rounds == 0 {
			continue
		}
		line := ModelLine{Engine: subject.engine, Partitions: subject.partitions}
		line.Measured = [2]float64{1e9 / alone, 2e9 / two.EachOfTwo.Median}
		rate := func(cores int) float64 {
			// The probability that another core had the line last.
			others := float64(cores-1) / float64(cores)
			if subject.engine == "one-lock" {
				return networkRate(cores, change, []float64{max(0, alone-change) + others*handOver})
			}
			think := alone - add + others*transfer
			service := (1-others)*add + others*transfer
			stations := make([]float64, subject.partitions)
			for k := range stations {
				stations[k] = service / float64(subject.partitions)
			}
			return networkRate(cores, think, stations)
		}
		line.ThinkNs, line.ServiceNs, line.ContendedExtra = alone-add, add, transfer-add
		if subject.engine == "one-lock" {
			line.ThinkNs, line.ServiceNs, line.ContendedExtra = change, alone-change, handOver
		}
		for _, cores := range model.Cores {
			line.UpdatesPerSecond = append(line.UpdatesPerSecond, 1e9*rate(cores))
		}
		line.ErrorAtTwo = line.UpdatesPerSecond[1]/line.Measured[1] - 1
		model.Lines = append(model.Lines, line)
	}
	return model
}

// networkRate returns the throughput of a closed network by mean value analysis. Its
// customers think, and then visit each station with its demand. All times have one unit.
func networkRate(customers int, think float64, demands []float64) float64 {
	queues := make([]float64, len(demands))
	rate := 0.0
	for n := 1; n <= customers; n++ {
		total := think
		times := make([]float64, len(demands))
		for k, demand := range demands {
			// An arriving customer finds the queue of a network with one customer less.
			times[k] = demand * (1 + queues[k])
			total += times[k]
		}
		rate = float64(n) / total
		for k := range queues {
			queues[k] = rate * times[k]
		}
	}
	return rate
}

// line returns the line of an engine, or nil if the model has none.
func (m Model) line(engine string, partitions int) *ModelLine {
	for k, l := range m.Lines {
		if l.Engine == engine && l.Partitions == partitions {
			return &m.Lines[k]
		}
	}
	return nil
}
