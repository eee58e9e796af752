package experiment

import (
	"time"

	"github.com/daybook-project/daybook/internal/disksim"
)

// PaperScenario is paper 1's experiment (sections 2.2 and 5): A reads, B
// reads and makes 2000 directories a second, both promised half of the disk.
// Unlike the paper's, B never calls fsync.
func PaperScenario(seconds float64, interval time.Duration) Scenario {
	return Scenario{
		Name: "50:50",
		Actors: []Actor{
			{Name: "A", Weight: 500},
			{Name: "B", Weight: 500, MkdirPerSecond: 2000, MkdirThreads: mkdirThreads},
		},
		Parameters: slowDisk(),
		Seconds:    seconds, Interval: interval,
	}
}

// ShareScenarios are those of bench-shares: 50:50, 70:30, and four containers
// of which two make metadata; each without any fsync, where paper 1's method
// ends (section 4.3), and with one a second, as the paper had to.
func ShareScenarios(seconds float64, interval time.Duration) []Scenario {
	var scenarios []Scenario
	for _, fsync := range []time.Duration{0, time.Second} {
		suffix := ""
		if fsync > 0 {
			suffix = " fsync"
		}
		fifty := PaperScenario(seconds, interval)
		fifty.Name += suffix
		fifty.Actors[1].FsyncEvery = fsync
		seventy := PaperScenario(seconds, interval)
		seventy.Name = "70:30" + suffix
		seventy.Actors[0].Weight, seventy.Actors[1].Weight = 700, 300
		seventy.Actors[1].FsyncEvery = fsync
		// B's hidden I/O must fit into what it was promised, also while the
		// kernel writes half a minute's in-place metadata in one heap, which
		// takes a quarter of the disk for some seconds.
		seventy.Actors[1].MkdirPerSecond = 400
		four := Scenario{
			Name: "40:30:20:10" + suffix,
			Actors: []Actor{
				{Name: "A", Weight: 400},
				{Name: "B", Weight: 300, MkdirPerSecond: 700, MkdirThreads: mkdirThreads, FsyncEvery: fsync},
				{Name: "C", Weight: 200, MkdirPerSecond: 300, MkdirThreads: mkdirThreads, FsyncEvery: fsync},
				{Name: "D", Weight: 100},
			},
			Parameters: slowDisk(), Seconds: seconds, Interval: interval,
		}
		scenarios = append(scenarios, fifty, seventy, four)
	}
	return scenarios
}

// DefaultSlices is PaperScenario with BFQ's slices and dispatching as they come
// and only low_latency off: what its other tunables are worth.
func DefaultSlices(seconds float64, interval time.Duration) Scenario {
	scenario := PaperScenario(seconds, interval)
	scenario.Name += " default slices"
	scenario.Tunables = map[string]uint64{"low_latency": 0, "strict_guarantees": 0, "timeout_sync": 125}
	return scenario
}

// mkdirThreads is 1: each further process that reads a little metadata of its
// own makes BFQ idle for it at its container's expense, which hides a part of
// the effect behind the container's own loss.
const mkdirThreads = 1

// slowDisk is the simulated hard disk on which the effect shows in a minute:
// so slow that the metadata of 2000 directories a second is a quarter of what
// it can do, with seeks short enough for them to be made.
func slowDisk() disksim.Parameters {
	return disksim.Parameters{
		BandwidthBytesPerSecond: 60e6,
		FullStrokeSeekSeconds:   0.006,
		TrackToTrackSeekSeconds: 0.0003,
		HostSlackSeconds:        0.002,
		Rotational:              true,
	}
}
