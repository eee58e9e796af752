package shares

import (
	"time"

	"github.com/daybook-project/daybook/internal/experiment/scenario"
)

// Scenarios are those of bench-shares: 50:50, 70:30, and four containers
// of which two make metadata; each without any fsync, where paper 1's method
// ends (section 4.3), and with one a second, as the paper had to.
func Scenarios(seconds float64, interval time.Duration) []scenario.Scenario {
	var scenarios []scenario.Scenario
	for _, fsync := range []time.Duration{0, time.Second} {
		suffix := ""
		if fsync > 0 {
			suffix = " fsync"
		}
		fifty := scenario.Paper(seconds, interval)
		fifty.Name += suffix
		fifty.Actors[1].FsyncEvery = fsync
		seventy := scenario.Paper(seconds, interval)
		seventy.Name = "70:30" + suffix
		seventy.Actors[0].Weight, seventy.Actors[1].Weight = 700, 300
		seventy.Actors[1].FsyncEvery = fsync
		// B's hidden I/O must fit into what it was promised, also while the
		// kernel writes half a minute's in-place metadata in one heap, which
		// takes a quarter of the disk for some seconds.
		seventy.Actors[1].MkdirPerSecond = 400
		four := scenario.Scenario{
			Name: "40:30:20:10" + suffix,
			Actors: []scenario.Actor{
				{Name: "A", Weight: 400},
				{Name: "B", Weight: 300, MkdirPerSecond: 700, MkdirThreads: scenario.MkdirThreads, FsyncEvery: fsync},
				{Name: "C", Weight: 200, MkdirPerSecond: 300, MkdirThreads: scenario.MkdirThreads, FsyncEvery: fsync},
				{Name: "D", Weight: 100},
			},
			Parameters: scenario.SlowDisk(), Seconds: seconds, Interval: interval,
		}
		scenarios = append(scenarios, fifty, seventy, four)
	}
	return scenarios
}

// DefaultSlices is Paper with BFQ's slices and dispatching as they come
// and only low_latency off: what its other tunables are worth.
func DefaultSlices(seconds float64, interval time.Duration) scenario.Scenario {
	scenario := scenario.Paper(seconds, interval)
	scenario.Name += " default slices"
	scenario.Tunables = map[string]uint64{"low_latency": 0, "strict_guarantees": 0, "timeout_sync": 125}
	return scenario
}
