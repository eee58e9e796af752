package experiment

// NVJModel predicts the rate of updates of 256 bytes for more cores than the
// machine has: it is a model, and no measurement. Each core is a customer of a
// closed network: it thinks (what it does for itself), and queues at stations that
// one core has at a time: the lock, or the line of a ring's head. The throughput is
// that of exact mean value analysis (Reiser and Lavenberg, 1980). Left out: the
// memory's bandwidth, the distance of sockets, callers' own locks, commits.
type NVJModel struct {
	Cores []int          `json:"cores"`
	Lines []NVJModelLine `json:"lines"`
}

// NVJModelLine is one engine.
type NVJModelLine struct {
	Engine     string `json:"engine"`
	Partitions int    `json:"partitions"`
	// UpdatesPerSecond at each number of cores.
	UpdatesPerSecond []float64 `json:"updates_per_second"`
	// Measured at one and two threads, and how far the prediction for two
	// is off, as a ratio less 1. That for one is right by calibration.
	Measured       [2]float64 `json:"measured"`
	ErrorAtTwo     float64    `json:"error_at_two"`
	ThinkNs        float64    `json:"think_ns"`
	ServiceNs      float64    `json:"service_ns"`
	ContendedExtra float64    `json:"contended_extra_ns"`
}

const mostCores = 64

// contention calibrates the model:
//   - one lock: everything but the change of the caller's own image is under it.
//     Who takes it from another core pays what a lock that is held for as long was
//     measured to cost more with two threads than with one.
//   - nvjournal: one addition to the head of a ring. Taken from another core, its
//     line takes a transfer instead of the addition alone; and so does, without a
//     queue, the line with the record's flag, which has its neighbours' flags.
func contention(floor []NVJUpdate, m NVJMachine) NVJModel {
	n := NVJournal{Floor: floor}
	change := n.update("change", 0).Nanoseconds.Median
	handOver := max(0, m.LockHeldContended.Median-m.LockHeldAlone.Median)
	add, transfer := m.AddAlone.Median, m.LineTransfer.Median
	model := NVJModel{}
	for cores := 1; cores <= mostCores; cores *= 2 {
		model.Cores = append(model.Cores, cores)
	}
	for _, subject := range []struct {
		engine     string
		partitions int
	}{{"one-lock", 1}, {"nvjournal", 1}, {"nvjournal", 8}} {
		u := n.update(subject.engine, subject.partitions)
		alone := u.Nanoseconds.Median
		if alone <= 0 {
			continue
		}
		line := NVJModelLine{Engine: subject.engine, Partitions: subject.partitions}
		line.Measured = [2]float64{1e9 / alone, 2e9 / u.EachOfTwo.Median}
		rate := func(cores int) float64 {
			// How often the last one was another core.
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

// networkRate is that of a closed network by mean value analysis: customers that
// think for so long, then visit each station with its demand. All in one unit of
// time.
func networkRate(customers int, think float64, demands []float64) float64 {
	queues := make([]float64, len(demands))
	rate := 0.0
	for n := 1; n <= customers; n++ {
		total := think
		times := make([]float64, len(demands))
		for k, demand := range demands {
			// Who arrives finds the queue of a network with one less.
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

// line is nil if it is not in the model.
func (m NVJModel) line(engine string, partitions int) *NVJModelLine {
	for k, l := range m.Lines {
		if l.Engine == engine && l.Partitions == partitions {
			return &m.Lines[k]
		}
	}
	return nil
}
