package scenario

import (
	"time"

	"github.com/daybook-project/daybook/internal/disksim"
)

// Paper is paper 1's experiment (sections 2.2 and 5): A reads, B
// reads and makes 2000 directories a second, both promised half of the disk.
// Unlike the paper's, B never calls fsync.
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

// MkdirThreads is 1: each further process that reads a little metadata of its
// own makes BFQ idle for it at its container's expense, which hides a part of
// the effect behind the container's own loss.
const MkdirThreads = 1

// SlowDisk is the simulated hard disk on which the effect shows in a minute:
// so slow that the metadata of 2000 directories a second is a quarter of what
// it can do, with seeks short enough for them to be made.
func SlowDisk() disksim.Parameters {
	return disksim.Parameters{
		BandwidthBytesPerSecond: 60e6,
		FullStrokeSeekSeconds:   0.006,
		TrackToTrackSeekSeconds: 0.0003,
		HostSlackSeconds:        0.002,
		Rotational:              true,
	}
}
