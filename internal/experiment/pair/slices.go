package pair

import (
	"fmt"
	"maps"
	"slices"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
)

// Slicing is the configuration of BFQ: how long one thread may have the disk, and how
// many requests the scheduler can choose from.
type Slicing struct {
	// Name is for reports.
	Name     string
	tunables map[string]uint64
	// requestKB is the longest request (queue/max_sectors_kb). requests is the number
	// of requests that the scheduler can hold (queue/nr_requests).
	requestKB, requests uint64
	// crowded means that the disk had many requests at a time before these settings.
	crowded bool
}

// FairSlices returns the settings of the other experiments, with the kernel's longest
// request and 256 requests, which is what BFQ has on a loop device.
func FairSlices() Slicing {
	return Slicing{Name: "slices of 40 ms", tunables: control.FairTunables(), requestKB: 1280, requests: 256}
}

// ShortSlices returns the settings of all arrangements. A program that syncs needs the
// disk every few milliseconds, and waits for its neighbour's slice each time. With these
// settings a slice ends after one request, which takes 9 ms on the simulated disk:
// max_budget, in sectors of 512 bytes, is smaller than the request.
func ShortSlices() Slicing {
	s := FairSlices()
	s.Name, s.requestKB = "short slices", 512
	s.tunables["timeout_sync"] = 12 // a whole number of ticks, at 250 in a second
	s.tunables["max_budget"] = s.requestKB * 1024 / blockdev.SectorBytes / 2
	return s
}

// FewRequests returns short slices with 64 requests, the kernel's default for many
// disks. If all requests are in use, a thread waits for one outside of the scheduler,
// where weights have no effect.
func FewRequests() Slicing {
	s := ShortSlices()
	s.Name, s.requests = "short slices, few requests", 64
	return s
}

// CrowdedBefore returns short slices on a scheduler that has seen many requests at a
// time on the disk, as is usual unless it is configured at once. Until it is replaced,
// BFQ then treats the disk as one with an internal queue: while it idles for the thread
// that it has just served, it injects requests of other threads (block/bfq-iosched.c,
// 6.18: bfq_update_hw_tag, idling_boosts_thr_without_issues,
// bfq_choose_bfqq_for_injection).
func CrowdedBefore() Slicing {
	s := ShortSlices()
	s.Name, s.crowded = "short slices, crowded before", true
	return s
}

// queue returns the attributes of the disk's queue.
func (s Slicing) queue() map[string]uint64 {
	return map[string]uint64{"max_sectors_kb": s.requestKB, "nr_requests": s.requests}
}

// String returns the settings as text for reports.
func (s Slicing) String() string {
	text := fixture.Settings(s.tunables)
	for _, name := range slices.Sorted(maps.Keys(s.queue())) {
		text += fmt.Sprintf(", %s=%d", name, s.queue()[name])
	}
	if s.crowded {
		text += "; before, many requests at a time"
	}
	return text
}
