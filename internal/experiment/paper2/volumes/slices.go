package volumes

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/fio"
)

// slicing is the configuration of BFQ: how long one thread may have the disk, and how
// many requests the scheduler can choose from.
type slicing struct {
	name     string
	tunables map[string]uint64
	// requestKB is the longest request (queue/max_sectors_kb). requests is the number
	// of requests that the scheduler can hold (queue/nr_requests).
	requestKB, requests uint64
	// crowded means that the disk had many requests at a time before these settings.
	crowded bool
}

// fairSlices returns the settings of the other experiments, with the kernel's longest
// request and 256 requests, which is what BFQ has on a loop device.
func fairSlices() slicing {
	return slicing{name: "slices of 40 ms", tunables: control.FairTunables(), requestKB: 1280, requests: 256}
}

// shortSlices returns the settings of all arrangements. A program that syncs needs the
// disk every few milliseconds, and waits for its neighbour's slice each time. With these
// settings a slice ends after one request, which takes 9 ms on the simulated disk:
// max_budget, in sectors of 512 bytes, is smaller than the request.
func shortSlices() slicing {
	s := fairSlices()
	s.name, s.requestKB = "short slices", 512
	s.tunables["timeout_sync"] = 12 // a whole number of ticks, at 250 in a second
	s.tunables["max_budget"] = s.requestKB * 1024 / blockdev.SectorBytes / 2
	return s
}

// fewRequests returns short slices with 64 requests, the kernel's default for many
// disks. If all requests are in use, a thread waits for one outside of the scheduler,
// where weights have no effect.
func fewRequests() slicing {
	s := shortSlices()
	s.name, s.requests = "short slices, few requests", 64
	return s
}

// crowdedBefore returns short slices on a scheduler that has seen many requests at a
// time on the disk, as is usual unless it is configured at once. Until it is replaced,
// BFQ then treats the disk as one with an internal queue: while it idles for the thread
// that it has just served, it injects requests of other threads (block/bfq-iosched.c,
// 6.18: bfq_update_hw_tag, idling_boosts_thr_without_issues,
// bfq_choose_bfqq_for_injection).
func crowdedBefore() slicing {
	s := shortSlices()
	s.name, s.crowded = "short slices, crowded before", true
	return s
}

// queue returns the attributes of the disk's queue.
func (s slicing) queue() map[string]uint64 {
	return map[string]uint64{"max_sectors_kb": s.requestKB, "nr_requests": s.requests}
}

// String returns the settings as text for reports.
func (s slicing) String() string {
	text := fixture.Settings(s.tunables)
	for _, name := range slices.Sorted(maps.Keys(s.queue())) {
		text += fmt.Sprintf(", %s=%d", name, s.queue()[name])
	}
	if s.crowded {
		text += "; before, many requests at a time"
	}
	return text
}

// SliceTrial is a phase on partitions with one configuration of the scheduler.
type SliceTrial struct {
	// Slices is the name of the configuration, Settings its text for reports.
	Slices   string `json:"slices"`
	Settings string `json:"settings"`
	Load     string `json:"load"`
	Phase
}

// sliceLoads are the loads and neighbours that are measured with each configuration.
var sliceLoads = []struct {
	load       string
	neighbours []fio.Neighbour
}{
	{fioLoad, []fio.Neighbour{Alone, fio.HighFsync}},
	{mariadbLoad, []fio.Neighbour{fio.LowFsync, fio.HighFsync}},
}

// sliceTrials measures gain and cost of the configurations, with a partition for each
// container.
func sliceTrials(ctx context.Context, l fixture.Lab, o Options, what plannedPart) (trials []SliceTrial, err error) {
	for _, how := range []slicing{fairSlices(), shortSlices(), fewRequests(), crowdedBefore()} {
		for _, tried := range sliceLoads {
			on := conditions{disk: what.disk, mode: what.mode, arrangement: fixture.OwnPartitions, slices: how}
			phases, err := pairPhases(ctx, l, o, on, tried.load, tried.neighbours)
			if err != nil {
				return trials, fmt.Errorf("%s, %s: %w", how.name, tried.load, err)
			}
			for _, phase := range phases {
				trials = append(trials, SliceTrial{Slices: how.name, Settings: how.String(), Load: tried.load, Phase: phase})
			}
		}
	}
	return trials, nil
}
