package experiment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control"
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
	text := settings(s.tunables)
	for _, name := range slices.Sorted(maps.Keys(s.queue())) {
		text += fmt.Sprintf(", %s=%d", name, s.queue()[name])
	}
	if s.crowded {
		text += "; before, many requests at a time"
	}
	return text
}

// heldRecord is the file in a stand's home with what a killed run leaves on a
// loop device, which other files get after it. A line has the device, the
// attribute of its queue, what was set and what was there.
const (
	heldRecord       = "held"
	maxHeldFileBytes = 1024
)

// holdQueue sets attributes of the disk's queue until the end.
func (s *stand) holdQueue(attributes map[string]uint64) error {
	disk := s.disk.Device
	before, record := make(map[string]string), ""
	for name, value := range attributes {
		var err error
		if before[name], err = disk.Queue(name); err != nil {
			return err
		}
		record += fmt.Sprintln(disk.Name, name, value, before[name])
	}
	file := filepath.Join(s.home, heldRecord)
	if err := os.WriteFile(file, []byte(record), 0o600); err != nil {
		return fmt.Errorf("cannot note how the queue of %s was: %w", disk.Name, err)
	}
	s.disk.undo = append(s.disk.undo, func() error {
		var errs []error
		for name, value := range before {
			errs = append(errs, disk.SetQueue(name, value))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		return os.Remove(file)
	})
	for name, value := range attributes {
		if err := disk.SetQueue(name, strconv.FormatUint(value, 10)); err != nil {
			return err
		}
	}
	return nil
}

// releaseQueues puts back what a killed run set, where nobody has set something
// else since.
func releaseQueues(home string) error {
	file := filepath.Join(home, heldRecord)
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Size() > maxHeldFileBytes {
		return fmt.Errorf("%s has %d bytes: want at most %d", file, info.Size(), maxHeldFileBytes)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) != 4 || !strings.HasSuffix(line, "\n") {
			return nil // killed while it was written, before anything was set
		}
		if err := releaseQueue(words[0], words[1], words[2], words[3]); err != nil {
			return err
		}
	}
	return nil
}

func releaseQueue(device, attribute, set, before string) error {
	disk, err := blockdev.Lookup(device)
	if errors.Is(err, blockdev.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	if now, err := disk.Queue(attribute); err != nil || now != set {
		return err
	}
	return disk.SetQueue(attribute, before)
}

// SliceTrial is a phase on partitions with the scheduler set in one way.
type SliceTrial struct {
	// Slices and Settings are for people.
	Slices   string `json:"slices"`
	Settings string `json:"settings"`
	Load     string `json:"load"`
	VolumesPhase
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
func (l Lab) sliceTrials(ctx context.Context, o VolumesOptions, what plannedPart) (trials []SliceTrial, err error) {
	for _, how := range []slicing{fairSlices(), shortSlices(), fewRequests(), crowdedBefore()} {
		for _, tried := range sliceLoads {
			on := standOptions{disk: what.disk, mode: what.mode, arrangement: OwnPartitions, slices: how}
			phases, err := l.standPhases(ctx, o, on, tried.load, tried.neighbours)
			if err != nil {
				return trials, fmt.Errorf("%s, %s: %w", how.name, tried.load, err)
			}
			for _, phase := range phases {
				trials = append(trials, SliceTrial{Slices: how.name, Settings: how.String(), Load: tried.load, VolumesPhase: phase})
			}
		}
	}
	return trials, nil
}
