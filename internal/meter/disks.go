package meter

import (
	"errors"
	"maps"
	"slices"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/journal"
)

// openDisk is a disk whose counters are read at each interval.
type openDisk struct {
	disk   blockdev.Disk
	reader *blockdev.StatReader
	before blockdev.Stat
	// weights are those on this disk.
	weights *weightCache
	// identity distinguishes it from another disk that gets its name and
	// number.
	identity string
	// volume is the Daybook volume on it; "" for other disks. note is account.Device's.
	volume, note string
}

// know reads the properties of the disk that has the name and number now. It
// does nothing while that is the same disk.
func (d *openDisk) know(tree *cgroup.Tree) error {
	identity, err := d.disk.Identity()
	if err != nil || identity == d.identity {
		return err
	}
	d.identity, d.weights, d.volume, d.note = identity, newWeightCache(tree, d.disk), volumeOn(d.disk), noteOn(d.disk)
	return nil
}

func (m *Meter) readDisks() ([]Disk, error) {
	var out []Disk
	for dev, d := range m.disks {
		now, err := d.reader.Read()
		if err == nil {
			err = d.disk.Present()
		}
		if err == nil {
			err = d.know(m.options.Tree)
		}
		if errors.Is(err, blockdev.ErrGone) {
			if gone := m.lose(d.disk, err); gone != nil {
				return nil, gone
			}
			_ = d.reader.Close()
			delete(m.disks, dev)
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, Disk{
			Name: d.disk.Name, Number: d.disk.Dev.String(), Dev: dev,
			ReadBytes:  now.ReadBytes - d.before.ReadBytes,
			WriteBytes: now.WriteBytes - d.before.WriteBytes,
		})
		d.before = now
	}
	return out, nil
}

// lose stops observing a disk that is gone. It returns an error if no observed
// disk is left.
func (m *Meter) lose(disk blockdev.Disk, gone error) error {
	m.only = slices.DeleteFunc(m.only, func(d blockdev.Disk) bool { return d == disk })
	if len(m.options.Devices) > 0 && len(m.only) == 0 {
		return gone
	}
	m.options.Log.Warn("a disk is gone", "disk", disk.Name)
	return nil
}

// asked reports whether the account has a page of a disk. A device is read, too, if it is
// on several disks of which one is asked for.
func (m *Meter) asked(disk string) bool {
	return len(m.options.Devices) == 0 || slices.ContainsFunc(m.only, func(d blockdev.Disk) bool { return d.Name == disk })
}

// observes reports whether the account includes the disk of a file system, or one of the
// several disks below it.
func (m *Meter) observes(fs filesystem) bool {
	return len(m.options.Devices) == 0 || slices.Contains(m.only, fs.disk) ||
		slices.ContainsFunc(fs.below, func(d blockdev.Disk) bool { return slices.Contains(m.only, d) })
}

// findDisks lists the mounted file systems and observes their disks, for the next interval.
func (m *Meter) findDisks() error {
	found, err := mountedFilesystems(sysDirectory)
	if err != nil {
		return err
	}
	clear(m.diskOf)
	clear(m.names)
	m.below = make(map[uint32][]uint32)
	return m.observeFound(found, make(map[uint32]blockdev.Disk), make(map[uint32]uint32), false)
}

// findMore does the same during an interval. What it found before stays until the end of the
// interval, which has its figures. Those of a disk begin when it is found.
func (m *Meter) findMore() error {
	found, err := mountedFilesystems(sysDirectory)
	if err != nil {
		return err
	}
	wanted := make(map[uint32]blockdev.Disk, len(m.disks))
	for dev, open := range m.disks {
		wanted[dev] = open.disk
	}
	return m.observeFound(found, wanted, maps.Clone(m.copied), true)
}

// gatherFound adds events to those of the interval, and removes those from before a disk was
// observed. It is called after the disks are observed, so that it has all of these. before is
// what was observed until then.
func (m *Meter) gatherFound(before observed) error {
	if err := m.gather(); err != nil {
		return err
	}
	found := sight{before: before, late: keysOf(m.disks), now: Readings{DiskOf: m.diskOf, Copied: m.copied, Below: m.below}}
	for dev := range before.disks {
		delete(found.late, dev)
	}
	found.dropEarly(m.gathered)
	return nil
}

// observeFound adds the file systems that are mounted to those that are known, and observes their
// disks, and those of wanted. copied are devices as in Meter.copied, to which it adds. keep
// means that what is not mounted any more is still accounted. After an error the next call
// observes all disks again.
func (m *Meter) observeFound(found []filesystem, wanted map[uint32]blockdev.Disk, copied map[uint32]uint32, keep bool) error {
	for _, module := range journal.NVModules {
		mounted := slices.ContainsFunc(found, func(fs filesystem) bool { return fs.driver == string(module) })
		m.follow(module, mounted || keep && m.following[module])
	}
	mounted := m.noteFilesystems(found, wanted, copied)
	opened, err := m.openDisks(wanted)
	m.unobserved = m.unobserved || mounted || opened || !maps.Equal(copied, m.copied)
	m.copied = copied
	if err != nil {
		return err
	}
	if m.unobserved {
		if err := m.observeDisks(); err != nil {
			return err
		}
		m.unobserved = false
	}
	m.observed = observed{disks: keysOf(m.disks), filesystems: keysOf(m.diskOf)}
	return nil
}

// sysDirectory is a variable for tests.
var sysDirectory = "/sys"

// noteFilesystems notes which file system is on which disk. It adds the disks to observe to
// wanted, and the devices whose writes reach a disk in copies to copied. mounted means that a
// file system was mounted.
func (m *Meter) noteFilesystems(found []filesystem, wanted map[uint32]blockdev.Disk, copied map[uint32]uint32) (mounted bool) {
	for _, fs := range found {
		if !m.observes(fs) {
			continue
		}
		dev, disk := fs.dev.Kernel(), fs.disk.Dev.Kernel()
		m.diskOf[dev] = disk
		m.names[dev] = fs.name
		wanted[disk] = fs.disk
		if fs.below != nil {
			m.below[disk] = numbers(fs.below)
		}
		if fs.copied != 0 {
			copied[fs.copied] = disk
		}
		if m.mounts[dev] != fs.mount {
			m.mounts[dev] = fs.mount
			m.sizes[dev], m.journals[dev] = fs.facts()
			mounted = true
		}
	}
	for dev := range m.mounts {
		if _, mounted := m.diskOf[dev]; !mounted {
			delete(m.mounts, dev)
			delete(m.sizes, dev)
			delete(m.journals, dev)
		}
	}
	for _, disk := range m.only {
		wanted[disk.Dev.Kernel()] = disk
	}
	return mounted
}

// openDisks opens the wanted disks that are not open, and closes the others.
func (m *Meter) openDisks(wanted map[uint32]blockdev.Disk) (changed bool, err error) {
	for dev, disk := range wanted {
		if m.disks[dev] != nil {
			continue
		}
		open, err := m.open(disk)
		if errors.Is(err, blockdev.ErrGone) {
			if gone := m.lose(disk, err); gone != nil {
				return changed, gone
			}
			continue
		}
		if err != nil {
			return changed, err
		}
		m.disks[dev] = open
		changed = true
	}
	for dev, d := range m.disks {
		if _, ok := wanted[dev]; !ok {
			_ = d.reader.Close()
			delete(m.disks, dev)
			changed = true
		}
	}
	return changed, nil
}

// open takes the first reading of a disk. The error wraps blockdev.ErrGone if the disk is
// gone.
func (m *Meter) open(disk blockdev.Disk) (*openDisk, error) {
	reader, err := disk.OpenStat()
	if err != nil {
		return nil, err
	}
	open := &openDisk{disk: disk, reader: reader}
	if open.before, err = reader.Read(); err == nil {
		err = open.know(m.options.Tree)
	}
	if err != nil {
		return nil, errors.Join(err, reader.Close())
	}
	return open, nil
}

// observeDisks names to the probe the disks and the external journals of now.
func (m *Meter) observeDisks() error {
	observed := slices.Collect(maps.Keys(m.copied))
	for dev := range m.disks {
		observed = append(observed, dev)
	}
	slices.Sort(observed)
	var journals []uint32
	for _, dev := range m.journals {
		if dev != 0 {
			journals = append(journals, dev)
		}
	}
	return m.probe.Observe(observed, journals...)
}

// numbers are the kernel's numbers of disks.
func numbers(disks []blockdev.Disk) []uint32 {
	list := make([]uint32, len(disks))
	for i, disk := range disks {
		list[i] = disk.Dev.Kernel()
	}
	return list
}
