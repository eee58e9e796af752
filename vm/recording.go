package vm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Recording has what power cuts at certain moments would leave: of each volatile
// disk what was durable and what was in its cache, and of persistent memory all
// of it. The moments are those before each flush takes effect, which are the
// last at which the flush before it is the latest, and those that [Recording.Now]
// is called at. The guest stands still while one is noted, so disks and memory
// are of the same instant.
//
// What is recorded is kept in this process's memory, and so is the content of
// the devices at the beginning: it is for small ones.
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
	// For each point: the writes that became durable since the point before, and those in
	// the cache.
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

// Record starts a recording of at most most points. There is one at a time, and
// the guest must have a volatile disk.
func (m *Machine) Record(most int) (*Recording, error) {
	m.deviceMu.Lock()
	defer m.deviceMu.Unlock()
	r := &Recording{machine: m, most: most, full: make(chan struct{})}
	for i, d := range m.volatile {
		if d == nil {
			continue
		}
		if d.recording != nil {
			return nil, errors.New("the guest's disks are being recorded already")
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

// note records the current state. The caller holds deviceMu.
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

// changed returns the pages that differ from the latest point.
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

// Now also records the current state.
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

// Pending returns the number of writes in the caches of all disks at a point,
// from 0.
func (r *Recording) Pending(point int) int {
	n := 0
	for _, d := range r.disks {
		n += len(d.pending[point])
	}
	return n
}

// Restore makes the guest's volatile disks and all of its persistent memory what
// a power cut at a point, counted from 0, left of them. survives is asked for
// each write that was in the cache of a disk, by its number there, whether it
// reached the medium all the same; nil: none did. The recording has ended, and
// nobody in the guest may use the devices: the guest runs, and notices nothing.
func (r *Recording) Restore(point int, survives func(disk, write int) bool) error {
	r.machine.deviceMu.Lock()
	defer r.machine.deviceMu.Unlock()
	if !r.ended || point < 0 || point >= r.points {
		return fmt.Errorf("cannot restore point %d of %d: the recording must have ended, and have it", point, r.points)
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

// deviceState is what a Machine has of volatile disks.
type deviceState struct {
	deviceMu sync.Mutex
	volatile []*volatileDisk // for each disk of the Config; nil: not volatile
}
