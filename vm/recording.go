package vm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Recording has the state that power cuts at certain points would leave: the durable
// content and the cache of each volatile disk, and the whole content of persistent memory.
// A point is recorded before each flush takes effect, because this is the last moment
// before a new flush counts, and at each call of [Recording.Now]. The guest is paused
// while a point is recorded, so disks and memory are from the same instant.
//
// The recording, and the initial content of the devices, are in this process's memory.
// It is therefore for small devices.
type Recording struct {
	machine *Machine
	most    int
	full    chan struct{}

	// machine.deviceMu protects all fields below.
	disks  []*recordedDisk // the volatile ones
	pmem   []*recordedPmem
	points int
	ended  bool
	err    error
}

type recordedDisk struct {
	disk  *volatileDisk
	index int // among the Config's disks
	start []byte
	// For each point: the writes that became durable since the previous point, and the
	// writes in the cache.
	became, pending [][]diskWrite
}

type recordedPmem struct {
	file    *os.File
	mapped  []byte
	start   []byte
	latest  []byte
	changes [][]pageContent // for each point, since the one before
}

type pageContent struct {
	offset int64
	bytes  []byte
}

// pmemPageBytes is the unit in which persistent memory is compared.
const pmemPageBytes = 4096

// Record starts a recording of at most this number of points. A guest has one recording
// at a time, and must have a volatile disk.
func (m *Machine) Record(most int) (*Recording, error) {
	m.deviceMu.Lock()
	defer m.deviceMu.Unlock()
	r := &Recording{machine: m, most: most, full: make(chan struct{})}
	for i, d := range m.volatile {
		if d == nil {
			continue
		}
		if d.recording != nil {
			return nil, errors.New("a recording of the guest's disks is already running")
		}
		start, err := whole(d.durable, d.size)
		if err != nil {
			return nil, err
		}
		r.disks = append(r.disks, &recordedDisk{disk: d, index: i, start: start})
	}
	if len(r.disks) == 0 {
		return nil, errors.New("nothing to record: no disk of this guest is volatile")
	}
	resume, err := m.current().qemu.pause()
	if err != nil {
		return nil, err
	}
	defer resume()
	for i, p := range m.config.Pmem {
		file := m.devices[len(m.config.Disks)+i]
		mapped, err := unix.Mmap(int(file.Fd()), 0, int(p.SizeBytes), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			r.unmap()
			return nil, &os.PathError{Op: "map", Path: file.Name(), Err: err}
		}
		r.pmem = append(r.pmem, &recordedPmem{file: file, mapped: mapped, start: bytes.Clone(mapped), latest: bytes.Clone(mapped)})
	}
	for _, d := range r.disks {
		// Writes already in the cache may become durable at the first flush.
		d.disk.recording, d.disk.became = r, nil
	}
	return r, nil
}

func whole(file *os.File, size int64) ([]byte, error) {
	b := make([]byte, size)
	if _, err := file.ReadAt(b, 0); err != nil {
		return nil, err
	}
	return b, nil
}

func (r *Recording) unmap() {
	for _, p := range r.pmem {
		_ = unix.Munmap(p.mapped)
		p.mapped = nil
	}
}

// note records a point with the current state. The caller holds deviceMu.
func (r *Recording) note() error {
	if r.ended || r.points == r.most {
		return r.err
	}
	resume, err := r.machine.current().qemu.pause()
	if err != nil {
		r.err = err
		return err
	}
	defer resume()
	for _, d := range r.disks {
		d.became = append(d.became, d.disk.became)
		d.pending = append(d.pending, d.disk.pending[:len(d.disk.pending):len(d.disk.pending)])
		d.disk.became = nil
	}
	for _, p := range r.pmem {
		p.changes = append(p.changes, p.changed())
	}
	r.points++
	if r.points == r.most {
		close(r.full)
	}
	return nil
}

// changed returns the pages that differ from the last point.
func (p *recordedPmem) changed() []pageContent {
	var pages []pageContent
	for at := 0; at < len(p.mapped); at += pmemPageBytes {
		now, before := p.mapped[at:at+pmemPageBytes], p.latest[at:at+pmemPageBytes]
		if !bytes.Equal(now, before) {
			copy(before, now)
			pages = append(pages, pageContent{int64(at), bytes.Clone(before)})
		}
	}
	return pages
}

// Now records a point with the current state.
func (r *Recording) Now() error {
	r.machine.deviceMu.Lock()
	defer r.machine.deviceMu.Unlock()
	return r.note()
}

// Full is closed when the recording has the maximum number of points. The guest
// continues without recording.
func (r *Recording) Full() <-chan struct{} { return r.full }

// End ends the recording, and returns the number of points.
func (r *Recording) End() (points int, err error) {
	r.machine.deviceMu.Lock()
	defer r.machine.deviceMu.Unlock()
	if !r.ended {
		r.ended = true
		for _, d := range r.disks {
			d.disk.recording, d.disk.became = nil, nil
		}
		r.unmap()
	}
	return r.points, r.err
}

// Pending returns the number of writes in the caches of all disks at a point. Points
// count from 0.
func (r *Recording) Pending(point int) int {
	n := 0
	for _, d := range r.disks {
		n += len(d.pending[point])
	}
	return n
}

// Restore sets the guest's volatile disks and its persistent memory to their state after a
// power cut at a point. Points count from 0. For each write in the cache of a disk,
// survives gets the disk and the write's number in its cache, and returns whether the
// write reached the medium; nil means that none did. The recording must have ended.
// Nothing in the guest may use the devices: the guest runs on, and its kernel does not
// learn of the change.
func (r *Recording) Restore(point int, survives func(disk, write int) bool) error {
	r.machine.deviceMu.Lock()
	defer r.machine.deviceMu.Unlock()
	if !r.ended || point < 0 || point >= r.points {
		return fmt.Errorf("cannot restore point %d of %d: the recording must have ended and contain this point", point, r.points)
	}
	for _, d := range r.disks {
		content := bytes.Clone(d.start)
		for _, became := range d.became[:point+1] {
			for _, w := range became {
				copy(content[w.offset:], w.data)
			}
		}
		for n, w := range d.pending[point] {
			if survives != nil && survives(d.index, n) {
				copy(content[w.offset:], w.data)
			}
		}
		if err := d.disk.become(content); err != nil {
			return err
		}
	}
	for _, p := range r.pmem {
		content := bytes.Clone(p.start)
		for _, pages := range p.changes[:point+1] {
			for _, page := range pages {
				copy(content[page.offset:], page.bytes)
			}
		}
		if _, err := p.file.WriteAt(content, 0); err != nil {
			return err
		}
	}
	return nil
}

// deviceState is the state of a Machine's volatile disks.
type deviceState struct {
	deviceMu sync.Mutex
	volatile []*volatileDisk // for each disk of the Config; nil: not volatile
}
