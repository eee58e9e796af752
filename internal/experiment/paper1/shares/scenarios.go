package shares

import (
	"time"

	"github.com/daybook-project/daybook/internal/experiment/scenario"
)

// Scenarios returns the scenarios of bench-shares --paper: 50:50, 70:30, and four
// containers of which two make metadata. Each is run without any fsync, which paper
// 1's method does not support (section 4.3), and with one a second, as in the paper.
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
		// B's hidden I/O must fit into its target share, also while the
		// kernel writes the in-place metadata of half a minute at once, which
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

// DefaultSlices is Paper with BFQ's default slices and dispatching, and only
// low_latency off. It shows the effect of the other tunables.
func DefaultSlices(seconds float64, interval time.Duration) scenario.Scenario {
	scenario := scenario.Paper(seconds, interval)
	scenario.Name += " default slices"
	scenario.Tunables = map[string]uint64{"low_latency": 0, "strict_guarantees": 0, "timeout_sync": 125}
	return scenario
}
