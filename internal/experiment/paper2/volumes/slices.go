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

// slicing is how long BFQ lets one thread have the disk, and how many requests it
// can choose among.
type slicing struct {
	name     string
	tunables map[string]uint64
	// requestKB is the longest request, queue/max_sectors_kb; requests are as
	// many as the scheduler sees at a time, queue/nr_requests.
	requestKB, requests uint64
	// crowded: the disk has had many requests at a time before it was set so.
	crowded bool
}

// fairSlices are those of the other experiments, with the kernel's longest
// request and, as with BFQ on a loop device, 256 requests.
func fairSlices() slicing {
	return slicing{name: "slices of 40 ms", tunables: control.FairTunables(), requestKB: 1280, requests: 256}
}

// shortSlices are in force in all arrangements. Who syncs comes back to the disk
// every few milliseconds and waits for the neighbour's slice each time: here it
// is over after one request, 9 ms of the simulated disk, as max_budget, in sectors
// of 512 bytes, is less than that.
func shortSlices() slicing {
	s := fairSlices()
	s.name, s.requestKB = "short slices", 512
	s.tunables["timeout_sync"] = 12 // a whole number of ticks, at 250 in a second
	s.tunables["max_budget"] = s.requestKB * 1024 / blockdev.SectorBytes / 2
	return s
}

// fewRequests are short slices with as many requests as the kernel gives many a
// disk. Who asks for one when all are taken waits where no weights are known.
func fewRequests() slicing {
	s := shortSlices()
	s.name, s.requests = "short slices, few requests", 64
	return s
}

// crowdedBefore are short slices on a scheduler that has seen the disk take many
// requests at a time, as any scheduler has that was not set so at once. BFQ then
// counts the disk as one with a queue of its own, for as long as it lives, and
// lets others' requests in while it waits for the thread that it has just served
// (block/bfq-iosched.c, 6.18: bfq_update_hw_tag, idling_boosts_thr_without_issues,
// bfq_choose_bfqq_for_injection).
func crowdedBefore() slicing {
	s := shortSlices()
	s.name, s.crowded = "short slices, crowded before", true
	return s
}

// queue has the attributes of the disk's queue.
func (s slicing) queue() map[string]uint64 {
	return map[string]uint64{"max_sectors_kb": s.requestKB, "nr_requests": s.requests}
}

// String is for people.
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

// SliceTrial is a phase on partitions with the scheduler set in one way.
type SliceTrial struct {
	// Slices and Settings are for people.
	Slices   string `json:"slices"`
	Settings string `json:"settings"`
	Load     string `json:"load"`
	Phase
}

// sliceLoads are what is tried with each setting, and beside whom.
var sliceLoads = []struct {
	load       string
	neighbours []fio.Neighbour
}{
	{fioLoad, []fio.Neighbour{Alone, fio.HighFsync}},
	{mariadbLoad, []fio.Neighbour{fio.LowFsync, fio.HighFsync}},
}

// sliceTrials measures what the settings give and cost, on a partition each.
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
