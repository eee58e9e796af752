package meter

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/journal"
)

// metadataMemorySeconds is the time constant with which the book forgets who
// dirtied metadata. In-place writes follow their commit within the kernel's
// dirty_expire_centisecs (30 s by default), unless the journal fills earlier.
const metadataMemorySeconds = 30

// Disk is the I/O of one disk in the interval.
type Disk struct {
	// Name is in /sys/block; Number is "major:minor"; Dev is the kernel's
	// dev_t.
	Name, Number          string
	Dev                   uint32
	ReadBytes, WriteBytes uint64
}

// Readings are the inputs of the book for one interval.
type Readings struct {
	Seconds float64
	Disks   []Disk
	// DiskOf maps the device of a file system to its disk (kernel dev_t).
	DiskOf map[uint32]uint32
	// Copied maps a device whose writes reach its disk in copies to that disk. What is
	// written is recognised on the device, and charged on the disk.
	Copied map[uint32]uint32
	// Below maps a device that is accounted itself to the several disks below it, of
	// which each is charged a copy or a part of what is written to the device.
	Below map[uint32][]uint32
	// NameOf is the name of a file system's device.
	NameOf map[uint32]string
	// MemoryCounters are the present counters of the journal in memory of a file system
	// on a device, by its name; nil if they are not known.
	MemoryCounters func(name string) map[string]uint64
	// BlockBytes is the block size of a file system, by its device.
	BlockBytes map[uint32]uint64
	Events     journal.Events
	// Journal is the result of the estimator: file system -> cgroup -> bytes.
	Journal journal.Charges
	// UnitOf maps a cgroup id to the path under which it is accounted.
	UnitOf func(cgroup uint64) string
	// Known reports whether a cgroup of that path can still be charged; nil means that all can.
	Known func(path string) bool
}

// diskBelow returns the disk that is accounted for a device, and whether what the kernel
// charged is counted there and not on the device.
func (r Readings) diskBelow(device uint32) (disk uint32, copied bool) {
	if disk, ok := r.Copied[device]; ok {
		return disk, true
	}
	return device, false
}

// Book stores the state that is kept from one interval to the next.
type Book struct {
	dirtied map[journal.Filesystem]map[string]float64 // unit -> bytes, fading
	logged  map[uint32]map[string]uint64              // disk -> charged unit -> journal bytes not yet attributed
	below   map[uint32]*below                         // disk below a device on several disks
	carried carried
}

// NewBook returns an empty book.
func NewBook() *Book {
	return &Book{
		dirtied: make(map[journal.Filesystem]map[string]float64),
		logged:  make(map[uint32]map[string]uint64),
		below:   make(map[uint32]*below),
		carried: make(carried),
	}
}

// page is the account of one device under construction.
type page struct {
	device account.Device
	units  map[string]*account.Container
	// timed are the commits whose start was seen.
	timed uint64
}

func (p *page) unit(path string) *account.Container {
	unit, ok := p.units[path]
	if !ok {
		unit = &account.Container{Cgroup: path}
		p.units[path] = unit
	}
	return unit
}

// Account returns the accounts of the devices, sorted by name, without names,
// weights and targets. The sum over a device's containers is the I/O of the
// disk, up to UnaccountedBytes.
func (b *Book) Account(in Readings) []account.Device {
	pages := make(map[uint32]*page, len(in.Disks))
	for _, disk := range in.Disks {
		pages[disk.Dev] = &page{
			device: account.Device{
				Device:     disk.Name,
				Dev:        disk.Number,
				DiskBytes:  disk.ReadBytes + disk.WriteBytes,
				LostEvents: in.Events.Lost,
			},
			units: make(map[string]*account.Container),
		}
		pages[disk.Dev].unit(account.RootCgroup)
	}
	for fs, weights := range b.dirtied {
		if _, mounted := in.DiskOf[fs.Dev]; !mounted {
			delete(b.dirtied, fs)
		}
		fade(weights, in.Seconds)
	}
	for disk := range b.logged {
		if pages[disk] == nil {
			delete(b.logged, disk) // the disk is gone
		}
	}
	b.enterWrites(pages, in)
	b.carried.enter(pages, in.Known)
	b.enterCommits(pages, in)
	b.enterLogs(pages, in)
	journals := b.enterJournal(pages, in)
	b.enterMetadata(pages, in)
	b.enterBelow(pages, in, journals)
	b.dropReplaced()
	devices := make([]account.Device, 0, len(pages))
	for disk, p := range pages {
		b.carried.limit(disk, p)
		devices = append(devices, p.close())
	}
	slices.SortFunc(devices, func(a, b account.Device) int { return cmp.Compare(a.Device, b.Device) })
	return devices
}

// enterWrites enters the charged bytes, and the data that was charged to the
// root cgroup although the owner of an inode is known.
func (b *Book) enterWrites(pages map[uint32]*page, in Readings) {
	for _, w := range in.Events.Writes {
		disk, copied := in.diskBelow(w.Disk)
		p := pages[disk]
		if p == nil {
			continue
		}
		charged := in.UnitOf(w.Charged)
		in.addStacked(pages, w, charged)
		if copied && countedBelow(w.Kind) {
			continue
		}
		switch w.Kind {
		case journal.KindChargedRead:
			p.unit(charged).ChargedReadBytes += w.Bytes
		case journal.KindChargedWrite:
			p.unit(charged).ChargedWriteBytes += w.Bytes
		case journal.KindOutstanding:
			p.unit(charged).RequestSeconds += time.Duration(w.Bytes).Seconds()
		case journal.KindBusy:
			p.unit(charged).BusySeconds += time.Duration(w.Bytes).Seconds()
		case journal.KindFlush:
			p.unit(charged).FlushSeconds += time.Duration(w.Bytes).Seconds()
		case journal.KindData:
			if owner := in.UnitOf(w.Owner); owner != charged {
				p.unit(owner).UnchargedBytes += w.Bytes
				p.unit(charged).ReturnedBytes += w.Bytes
			}
		case journal.KindJournal:
			if b.logged[disk] == nil {
				b.logged[disk] = make(map[string]uint64)
			}
			b.logged[disk][charged] += w.Bytes
		case journal.KindMetadata: // enterMetadata
		}
	}
}

func (b *Book) enterCommits(pages map[uint32]*page, in Readings) {
	for _, c := range in.Events.Commits {
		on := in.commitPages(pages, c.Dev)
		if len(on) == 0 || c.Partial {
			continue
		}
		counts := c.Counts()
		for _, p := range on {
			p.device.Transactions += counts.Commits
			p.device.CommitSeconds += c.DurationSeconds
			p.timed += counts.Timed // the others started before the measurement
			for cgroup, n := range counts.Forced {
				p.unit(in.UnitOf(cgroup)).ForcedCommits += n
			}
		}
		for cgroup, bytes := range c.Logged(max(in.BlockBytes[c.Dev], 1)) {
			b.remember(c.Filesystem(), in.UnitOf(cgroup), bytes)
		}
	}
	for _, p := range pages {
		if p.timed > 0 {
			p.device.CommitSeconds /= float64(p.timed)
		}
	}
}

// remember records who dirtied metadata that will be written in place.
func (b *Book) remember(fs journal.Filesystem, path string, bytes uint64) {
	if b.dirtied[fs] == nil {
		b.dirtied[fs] = make(map[string]float64)
	}
	b.dirtied[fs][path] += float64(bytes)
}

// dropReplaced forgets the file systems that were replaced by another mount:
// their last writes were in this interval.
func (b *Book) dropReplaced() {
	last := make(map[uint32]journal.Filesystem, len(b.dirtied))
	for fs := range b.dirtied {
		if before, ok := last[fs.Dev]; !ok || fs.After(before) {
			last[fs.Dev] = fs
		}
	}
	for fs := range b.dirtied {
		if fs != last[fs.Dev] {
			delete(b.dirtied, fs)
		}
	}
}

// enterJournal gives each cgroup its part of the logged bytes, and subtracts
// the same bytes from the cgroups that the kernel charged, which it returns. The
// kernel may have charged them in an earlier interval (carried).
func (b *Book) enterJournal(pages map[uint32]*page, in Readings) charges {
	elsewhere := make(map[uint32]bool)
	foreign := make(map[uint32]uint64) // what file systems on other disks logged on a disk
	for _, c := range in.Events.Commits {
		if disk, _ := in.diskBelow(c.JournalDisk); disk != 0 && disk != in.DiskOf[c.Dev] {
			elsewhere[c.Dev] = true
			foreign[disk] += c.JournalBytes
		}
	}
	for dev, charges := range in.Journal {
		disk := in.DiskOf[dev]
		p := pages[disk]
		if p == nil {
			continue
		}
		for cgroup, bytes := range charges {
			p.unit(in.UnitOf(cgroup)).JournalBytes += bytes
			p.device.JournalBytes += bytes
			if elsewhere[dev] {
				p.device.JournalElsewhereBytes += bytes
			}
		}
	}
	taken := make(charges, len(pages))
	for disk, p := range pages {
		here := p.device.JournalBytes - p.device.JournalElsewhereBytes
		// It is not known which cgroup was charged for the foreign part, which stays in its line.
		taken[disk] = takeFrom(takeFrom(b.logged[disk], here+foreign[disk]), here)
		for charged, bytes := range taken[disk] {
			p.unit(charged).ReturnedBytes += bytes
		}
	}
	return taken
}

// takeFrom removes up to total from the sums, in proportion, and returns how
// much it removed from each.
func takeFrom(sums map[string]uint64, total uint64) map[string]uint64 {
	taken := make(map[string]uint64, len(sums))
	var have uint64
	for _, sum := range sums {
		have += sum
	}
	total = min(total, have)
	left := total
	for _, key := range sortedKeys(sums) {
		if have == 0 {
			break
		}
		part := min(sums[key], uint64(math.Round(float64(left)*float64(sums[key])/float64(have))))
		have -= sums[key]
		left -= part
		taken[key] = part
		if sums[key] -= part; sums[key] == 0 {
			delete(sums, key)
		}
	}
	return taken
}

// enterMetadata divides the in-place writes by the blocks that each unit logged
// recently in the same file system, and subtracts them from the cgroups that
// the kernel charged: a checkpoint runs in the context of the process that
// found the journal full. Writes that belong to no observed file system (dd to
// a node, mke2fs, another kind of file system) stay charged to the cgroup that
// the kernel charged.
func (b *Book) enterMetadata(pages map[uint32]*page, in Readings) {
	written := make(map[origin]uint64)
	for _, w := range in.Events.Writes {
		disk, _ := in.diskBelow(w.Disk)
		p := pages[disk]
		if p == nil || w.Kind != journal.KindMetadata {
			continue
		}
		home, observed := in.DiskOf[w.Of]
		if !observed {
			continue
		}
		// The journal of a file system on a loop device above is also metadata
		// here. If its jbd2 thread is in a cgroup, that is charged, which is correct.
		// Below a device on several disks, the journal is known as such.
		if home != disk && !in.isBelow(disk, home) && (w.Charged != journal.RootCgroupID || len(b.dirtied[w.Filesystem()]) == 0) {
			continue
		}
		p.device.MetadataBytes += w.Bytes
		p.unit(in.UnitOf(w.Charged)).ReturnedBytes += w.Bytes
		written[origin{disk, w.Filesystem()}] += w.Bytes
	}
	for from, total := range written {
		for path, bytes := range splitByWeight(total, b.dirtied[from.fs]) {
			pages[from.disk].unit(path).MetadataBytes += bytes
		}
	}
}

// origin is the disk that metadata was written to, and its file system.
type origin struct {
	disk uint32
	fs   journal.Filesystem
}

// splitByWeight divides total in proportion to the weights without a remainder;
// without weights all of it goes to the root cgroup.
func splitByWeight(total uint64, weights map[string]float64) map[string]uint64 {
	if total == 0 {
		return nil
	}
	var sum float64
	for _, weight := range weights {
		sum += weight
	}
	if sum <= 0 {
		return map[string]uint64{account.RootCgroup: total}
	}
	out := make(map[string]uint64, len(weights))
	left := total
	for _, key := range sortedKeys(weights) {
		part := uint64(math.Round(float64(left) * min(1, weights[key]/sum)))
		part = min(part, left)
		sum -= weights[key]
		left -= part
		out[key] = part
		if sum <= 0 {
			out[key] += left
			return out
		}
	}
	return out
}

// fade reduces the weights with the time constant metadataMemorySeconds, and
// drops negligible ones.
func fade(weights map[string]float64, seconds float64) {
	factor := math.Exp(-seconds / metadataMemorySeconds)
	for key := range weights {
		if weights[key] *= factor; weights[key] < 1 {
			delete(weights, key)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// close computes the shares and the unaccounted rest.
func (p *page) close() account.Device {
	var sum uint64
	for _, unit := range p.units {
		unit.ChargedWriteBytes -= unit.ReturnedBytes // only writes are returned
		sum += unit.Bytes()
	}
	p.device.UnaccountedBytes = int64(p.device.DiskBytes) + int64(p.device.JournalElsewhereBytes) - int64(sum)
	for _, unit := range p.units {
		if sum > 0 {
			unit.Share = float64(unit.Bytes()) / float64(sum)
		}
		p.device.Containers = append(p.device.Containers, *unit)
	}
	slices.SortFunc(p.device.Containers, func(a, b account.Container) int {
		return cmp.Or(-cmp.Compare(a.Bytes(), b.Bytes()), cmp.Compare(a.Cgroup, b.Cgroup))
	})
	return p.device
}
