package experiment

// NVJUpdate is one update of 256 bytes: nanoseconds with one thread, and with each
// of two.
type NVJUpdate struct {
	Engine     string           `json:"engine"`
	Partitions int              `json:"partitions"`
	Rounds     []NVJUpdateRound `json:"rounds"`

	// What the rounds came to. OverFloor is the time of one thread over that of the
	// 256 bytes alone.
	One       Spread   `json:"one_thread_ns"`
	OverFloor Spread   `json:"over_floor"`
	Two       []NVJTwo `json:"two_threads"`
}

// NVJUpdateRound is one round: one thread, then two.
type NVJUpdateRound struct {
	Round     int     `json:"round"`
	One       float64 `json:"ns"`
	EachOfTwo float64 `json:"ns_each_of_two_threads"`
	NVJWay            // around that of two threads
}

// NVJTwo is what two threads came to while the processors were in one state.
type NVJTwo struct {
	State     NVJState `json:"state"`
	Rounds    int      `json:"rounds"`
	EachOfTwo Spread   `json:"ns_each"`
	// OverOne is the rate of two threads over that of one.
	OverOne Spread `json:"rate_over_one_thread"`
}

// two is what two threads came to in a state; zero: there was no such round.
func (u NVJUpdate) two(state NVJState) NVJTwo {
	for _, t := range u.Two {
		if t.State == state {
			return t
		}
	}
	return NVJTwo{}
}

func (n NVJournal) update(engine string, partitions int) NVJUpdate {
	for _, u := range n.Floor {
		if u.Engine == engine && u.Partitions == partitions {
			return u
		}
	}
	return NVJUpdate{}
}

func (n *NVJournal) evaluateUpdates(bound float64) {
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
		u.One, u.OverFloor, u.Two = spreadOf(one), spreadOf(over), nil
		for _, state := range nvjStates {
			var each, gain []float64
			for _, r := range u.Rounds {
				if r.State == state && r.EachOfTwo > 0 {
					each, gain = append(each, r.EachOfTwo), append(gain, 2*r.One/r.EachOfTwo)
				}
			}
			if len(each) > 0 {
				u.Two = append(u.Two, NVJTwo{state, len(each), spreadOf(each), spreadOf(gain)})
			}
		}
	}
}

// overOneLockUpdates are the ratios of nvjournal, with the better number of
// partitions, to one lock, for updates of 256 bytes of two threads; nil: there is no
// pair of rounds in this state. An update is one record: one fence for it is both
// forms of one lock.
func (n NVJournal) overOneLockUpdates(state NVJState) []float64 {
	all := make(map[int][]float64)
	for _, partitions := range []int{1, 8} {
		for _, ours := range n.update("nvjournal", partitions).Rounds {
			for _, lock := range n.update("one-lock", 1).Rounds {
				if ours.Round == lock.Round && ours.State == state && lock.State == state && ours.EachOfTwo > 0 {
					all[partitions] = append(all[partitions], lock.EachOfTwo/ours.EachOfTwo)
				}
			}
		}
	}
	_, ratios := betterRatio(all)
	return ratios
}
