package cgroup

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Reader reads the counters of all cgroups once an interval at a low cost. It
// walks the hierarchy each time, so that a new cgroup is listed at once, and
// keeps the counter files open. It is for one goroutine.
type Reader struct {
	tree     *Tree
	walk     walker
	files    []counterFile
	readings []Reading
	buffer   []byte
	// maxOpen limits the open descriptors; further files are opened and closed
	// each time.
	maxOpen, nowOpen int
}

// Reading is the counters of one cgroup, including its descendants.
type Reading struct {
	Cgroup
	// IO lists the disks on which it ever did I/O, as [Tree.IO] does.
	IO []DeviceIO
}

// counterFileMax is the maximum number of counter files of a hierarchy.
const counterFileMax = 2

// openFiles are the open counter files of a cgroup: the descriptor plus one, or
// 0 for closed.
type openFiles [counterFileMax]int

// NewReader returns a reader of the hierarchy, which may keep half of the
// process's file descriptors open.
func (t *Tree) NewReader() *Reader {
	r := &Reader{tree: t, files: t.kernel.counterFiles(), buffer: make([]byte, 0, 4096), maxOpen: 512}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		r.maxOpen = int(min(limit.Cur, 1<<20) / 2)
	}
	return r
}

// Read lists every cgroup, parents before children, with its counters. The
// slices are valid until the next Read. Cgroups that vanish meanwhile are
// skipped. The context can end a long walk.
func (r *Reader) Read(ctx context.Context) ([]Reading, error) {
	nodes, err := r.walk.walk(ctx, r.tree.root)
	if err != nil {
		return nil, err
	}
	r.walk.forget(r.close)

	files, read := r.files, 0
	for _, n := range nodes {
		if read == len(r.readings) {
			r.readings = append(r.readings, Reading{})
		}
		reading := &r.readings[read]
		reading.Cgroup = n.Cgroup
		reading.IO, err = r.counters(n, files, reading.IO[:0])
		if errors.Is(err, unix.ENODEV) {
			continue // vanished since it was listed
		}
		if err != nil {
			return nil, err
		}
		if n.parent == nil {
			files = r.enough(reading.IO)
		}
		read++
	}
	return r.readings[:read], nil
}

// enough omits the files without further information: the root lists every disk
// that any cgroup lists. So if the root found all its disks in the best file,
// no cgroup needs the second.
func (r *Reader) enough(root []DeviceIO) []counterFile {
	if len(r.files) < 2 || len(root) == 0 {
		return r.files
	}
	for _, d := range root {
		if d.From != r.files[0].source {
			return r.files
		}
	}
	return r.files[:1]
}

// Close closes all files; a later Read opens them again.
func (r *Reader) Close() error {
	r.closeAll()
	r.walk = walker{}
	return nil
}

func (r *Reader) closeAll() {
	for _, n := range r.walk.known {
		r.close(n)
	}
}

func (r *Reader) close(n *node) {
	for i := range n.open {
		r.closeFile(n, i)
	}
}

func (r *Reader) closeFile(n *node, i int) {
	if n.open[i] != 0 {
		unix.Close(n.open[i] - 1)
		n.open[i] = 0
		r.nowOpen--
	}
}

func (r *Reader) counters(n *node, files []counterFile, list []DeviceIO) ([]DeviceIO, error) {
	for i := range files {
		content, err := r.content(n, i)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			list, err = files[i].merge(content, list)
		}
		if err != nil {
			return list, fmt.Errorf("cannot read %s of cgroup %s: %w", files[i].name, n.Path, err)
		}
	}
	return list, nil
}

// content reads one counter file and opens it if necessary; it stays open while
// there are few.
func (r *Reader) content(n *node, i int) ([]byte, error) {
	if n.open[i] == 0 {
		file := filepath.Join(r.tree.root, n.Path, r.files[i].name)
		fd, err := openCounters(file)
		if errors.Is(err, unix.EMFILE) && r.nowOpen > 0 {
			// The rest of the process needs more descriptors than it had left.
			r.maxOpen = r.nowOpen / 2
			r.closeAll()
			fd, err = openCounters(file)
		}
		if err != nil {
			return nil, err
		}
		n.open[i] = fd + 1
		r.nowOpen++
	}
	content, err := readFD(n.open[i]-1, r.buffer)
	if err != nil || r.nowOpen > r.maxOpen {
		r.closeFile(n, i)
	}
	if err == nil {
		r.buffer = content[:0] // it may have grown
	}
	return content, err
}

func openCounters(file string) (fd int, err error) {
	return unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
}
