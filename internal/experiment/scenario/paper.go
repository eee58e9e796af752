package scenario

import (
	"time"

	"github.com/daybook-project/daybook/internal/disksim"
)

// Paper is paper 1's experiment (sections 2.2 and 5): A reads; B reads and makes
// 2000 directories a second. Each has a weight of half the disk. Unlike the
// paper's, B never calls fsync.
func Paper(seconds float64, interval time.Duration) Scenario {
	return Scenario{
		Name: "50:50",
		Actors: []Actor{
			{Name: "A", Weight: 500},
			{Name: "B", Weight: 500, MkdirPerSecond: 2000, MkdirThreads: MkdirThreads},
		},
		Parameters: SlowDisk(),
		Seconds:    seconds, Interval: interval,
	}
}

// MkdirThreads is 1: BFQ idles for each further process that reads a little
// metadata of its own. The idle time is charged to its container, and that loss
// hides a part of the effect.
const MkdirThreads = 1

// SlowDisk is the simulated hard disk on which the effect shows within a minute. It
// is so slow that the metadata of 2000 directories a second is a quarter of its
// throughput, and its seeks are short enough to make them.
func SlowDisk() disksim.Parameters {
	return disksim.Parameters{
		BandwidthBytesPerSecond: 60e6,
		FullStrokeSeekSeconds:   0.006,
		TrackToTrackSeekSeconds: 0.0003,
		HostSlackSeconds:        0.002,
		Rotational:              true,
	}
}
