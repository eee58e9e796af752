package nvjournal

import "github.com/daybook-project/daybook/internal/experiment/statistics"

// Update is the time of one update of 256 bytes, ns, with one thread and with two.
type Update struct {
	Engine     string        `json:"engine"`
	Partitions int           `json:"partitions"`
	Rounds     []UpdateRound `json:"rounds"`

	// The results of the rounds. OverFloor is the time of one thread over that of
	// copy, flush and fence of the 256 bytes.
	One       statistics.Spread `json:"one_thread_ns"`
	OverFloor statistics.Spread `json:"over_floor"`
	Two       []Two             `json:"two_threads"`
}

// UpdateRound is one round: one thread, then two.
type UpdateRound struct {
	Round     int     `json:"round"`
	One       float64 `json:"ns"`
	EachOfTwo float64 `json:"ns_each_of_two_threads"`
	Way               // around that of two threads
}

// Two is the result of two threads while the processors were in one state.
type Two struct {
	State     State             `json:"state"`
	Rounds    int               `json:"rounds"`
	EachOfTwo statistics.Spread `json:"ns_each"`
	// OverOne is the rate of two threads over that of one.
	OverOne statistics.Spread `json:"rate_over_one_thread"`
}

// two returns the result of two threads in a state; zero if there was no such round.
func (u Update) two(state State) Two {
	for _, t := range u.Two {
		if t.State == state {
			return t
		}
	}
	return Two{}
}

func (n Result) update(engine string, partitions int) Update {
	for _, u := range n.Floor {
		if u.Engine == engine && u.Partitions == partitions {
			return u
		}
	}
	return Update{}
}

func (n *Result) evaluateUpdates(bound float64) {
	floor := n.update("floor-256", 0).Rounds
	for k := range n.Floor {
		u := &n.Floor[k]
		var one, over []float64
		for r := range u.Rounds {
			u.Rounds[r].tag(bound)
			one = append(one, u.Rounds[r].One)
			for _, f := range floor {
				if f.Round == u.Rounds[r].Round && f.One > 0 {
					over = append(over, u.Rounds[r].One/f.One)
				}
			}
		}
		u.One, u.OverFloor, u.Two = statistics.SpreadOf(one), statistics.SpreadOf(over), nil
		for _, state := range states {
			var each, gain []float64
			for _, r := range u.Rounds {
				if r.State == state && r.EachOfTwo > 0 {
					each, gain = append(each, r.EachOfTwo), append(gain, 2*r.One/r.EachOfTwo)
				}
			}
			if len(each) > 0 {
				u.Two = append(u.Two, Two{state, len(each), statistics.SpreadOf(each), statistics.SpreadOf(gain)})
			}
		}
	}
}

// overOneLockUpdates returns the ratios of nvjournal, by processor, to one lock for updates
// of 256 bytes by two threads; nil if there is no pair of rounds in this state. Such an
// update has one record, so both forms of one lock are the same: one fence.
func (n Result) overOneLockUpdates(state State) (ratios []float64) {
	for _, u := range n.Floor {
		if u.Engine != byProcessor {
			continue
		}
		for _, ours := range u.Rounds {
			for _, lock := range n.update("one-lock", 1).Rounds {
				if ours.Round == lock.Round && ours.State == state && lock.State == state && ours.EachOfTwo > 0 {
					ratios = append(ratios, lock.EachOfTwo/ours.EachOfTwo)
				}
			}
		}
	}
	return ratios
}
