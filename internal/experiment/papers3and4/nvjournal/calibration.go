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
		spread := func(value func(m Machine) float64) statistics.Spread { return statistics.SpreadBy(of, value) }
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
