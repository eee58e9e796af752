package meter

import (
	"math"
	"slices"
	"time"

	"github.com/daybook-project/daybook/internal/journal"
)

const (
	// belowMemorySeconds is the time constant of the mean part that journals have of
	// what is charged to a cgroup.
	belowMemorySeconds = 10
	// owedMemorySeconds is the time constant with which a journal is forgotten that was
	// submitted above a disk and did not come to it: a stripe is on another disk.
	owedMemorySeconds = 2
)

// below is what is kept of a disk below a device that is on several disks.
type below struct {
	// above is what the kernel charged to a unit on the devices above, without what is
	// known to be others' data and metadata; journal is the journals' part of it. Both
	// fade.
	above, journal map[string]float64
	// owed are journal bytes that were submitted above and not charged here yet, by
	// charged unit and owner. They fade.
	owed map[string]map[string]uint64
}

// charges are what the kernel charged on a device for its journals in an interval, by
// charged unit.
type charges map[uint32]map[string]uint64

// addStacked adds the time for which a device that lies on disks was waited for, to the lines of
// these.
func (in Readings) addStacked(pages map[uint32]*page, w journal.Write, path string) {
	if w.Kind != journal.KindBusy && w.Kind != journal.KindFlush {
		return
	}
	below := in.Below[w.Disk]
	if disk, copied := in.diskBelow(w.Disk); copied {
		below = []uint32{disk}
	}
	for _, disk := range below {
		if p := pages[disk]; p != nil {
			p.unit(path).StackedSeconds += time.Duration(w.Bytes).Seconds()
		}
	}
}

// countedBelow reports whether what a device whose writes reach a disk in copies has of that kind
// is counted on the disk, too.
func countedBelow(kind journal.Kind) bool {
	switch kind {
	case journal.KindChargedRead, journal.KindChargedWrite, journal.KindOutstanding, journal.KindBusy, journal.KindFlush:
		return true
	}
	return false
}

// enterBelow gives each unit its part of the journal on the disks below devices that are
// on several disks. Such a device counts its journal when it is submitted. The kernel
// charges it to the same cgroup once more on each disk that it is written to: on all of
// a mirror, on one of a stripe. So the journals' part of what is charged on the disk is
// taken to be as above, in the mean of some seconds, and at most what was submitted
// above: not more than one copy is on a disk.
func (b *Book) enterBelow(pages map[uint32]*page, in Readings, journals charges) {
	above := make(map[uint32][]uint32)
	for device, disks := range in.Below {
		for _, disk := range disks {
			if pages[device] != nil && pages[disk] != nil {
				above[disk] = append(above[disk], device)
			}
		}
	}
	for disk := range b.below {
		if above[disk] == nil {
			delete(b.below, disk)
		}
	}
	for disk, devices := range above {
		memory := b.below[disk]
		if memory == nil {
			memory = &below{above: map[string]float64{}, journal: map[string]float64{}, owed: map[string]map[string]uint64{}}
			b.below[disk] = memory
		}
		memory.fade(in.Seconds)
		slices.Sort(devices)
		for _, device := range devices {
			memory.expect(pages[device], journals[device])
		}
		memory.enter(pages[disk])
	}
}

// unreturned is what the kernel charged to a unit and is not known to be others'.
func (p *page) unreturned(path string) uint64 {
	unit := p.units[path]
	if unit == nil {
		return 0
	}
	return unit.ChargedWriteBytes - min(unit.ReturnedBytes, unit.ChargedWriteBytes)
}

// expect books what was submitted to a device above.
func (m *below) expect(device *page, journal map[string]uint64) {
	owners := make(map[string]float64)
	for path, unit := range device.units {
		if unit.JournalBytes > 0 {
			owners[path] = float64(unit.JournalBytes)
		}
	}
	for charged, bytes := range journal {
		if bytes == 0 {
			continue
		}
		m.journal[charged] += float64(bytes)
		if m.owed[charged] == nil {
			m.owed[charged] = make(map[string]uint64)
		}
		for owner, part := range splitByWeight(bytes, owners) {
			m.owed[charged][owner] += part
		}
	}
	for charged := range m.journal {
		m.above[charged] += float64(device.unreturned(charged) + journal[charged])
	}
}

// enter gives the owners what is charged on the disk by now.
func (m *below) enter(disk *page) {
	for _, charged := range sortedKeys(m.owed) {
		part := min(1, m.journal[charged]/max(1, m.above[charged]))
		here := uint64(math.Round(part * float64(disk.unreturned(charged))))
		for owner, bytes := range takeFrom(m.owed[charged], min(here, disk.unreturned(charged))) {
			if bytes == 0 {
				continue
			}
			disk.unit(owner).JournalBytes += bytes
			disk.unit(charged).ReturnedBytes += bytes
			disk.device.JournalBytes += bytes
		}
	}
}

func (m *below) fade(seconds float64) {
	factor := math.Exp(-seconds / belowMemorySeconds)
	for charged := range m.journal {
		m.above[charged] *= factor
		if m.journal[charged] *= factor; m.journal[charged] < 1 {
			delete(m.above, charged)
			delete(m.journal, charged)
		}
	}
	factor = math.Exp(-seconds / owedMemorySeconds)
	for charged, owed := range m.owed {
		for owner, bytes := range owed {
			if owed[owner] = uint64(float64(bytes) * factor); owed[owner] == 0 {
				delete(owed, owner)
			}
		}
		if len(owed) == 0 {
			delete(m.owed, charged)
		}
	}
}

// isBelow reports whether a disk is one of those below a device on several disks.
func (r Readings) isBelow(disk, device uint32) bool { return slices.Contains(r.Below[device], disk) }

// commitPages are the pages on which the commits of a file system count: that of its
// disk and, if that is a device on several disks, theirs.
func (r Readings) commitPages(pages map[uint32]*page, fs uint32) []*page {
	disk, known := r.DiskOf[fs]
	if !known {
		return nil
	}
	var found []*page
	for _, dev := range append([]uint32{disk}, r.Below[disk]...) {
		if p := pages[dev]; p != nil {
			found = append(found, p)
		}
	}
	return found
}
