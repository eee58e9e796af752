package cgroup

import (
	"errors"

	"github.com/daybook-project/daybook/internal/blockdev"
	"golang.org/x/sys/unix"
)

// Source says which kernel counter a value comes from. Values of different
// sources must not be subtracted from each other.
type Source uint8

// The counters, with what each leaves out.
const (
	// FromNone is the zero value: no counter listed the disk yet.
	FromNone Source = iota
	// FromBFQ is v1 blkio.bfq.io_service_bytes_recursive: requests, counted
	// when they enter the scheduler, only on disks that use BFQ, from 0 when
	// a disk is switched to BFQ. A bio that is merged into a request already
	// queued is not counted (0.2 % with 8 threads writing interleaved 4 KiB).
	// What a removed child did stays in its parent's count.
	FromBFQ
	// FromThrottle is v1 blkio.throttle.io_service_bytes_recursive: bios,
	// counted under every scheduler before any merge. Kernels from 6.10 on
	// count only on disks that have or had a blkio.throttle limit. What a
	// removed child did is taken out of its parent's count, which so goes
	// backwards.
	FromThrottle
	// FromIOStat is v2 io.stat: bios, counted under every scheduler. What a
	// removed child did stays in its parent's count.
	FromIOStat
)

// String names the kernel file.
func (s Source) String() string {
	switch s {
	case FromBFQ:
		return v1BFQBytes
	case FromThrottle:
		return v1ThrottleBytes
	case FromIOStat:
		return v2IOStat
	default:
		return "none"
	}
}

// Counters is what a cgroup and its descendants did on one disk since the
// counter began, in bytes.
type Counters struct {
	ReadBytes, WriteBytes uint64
	From                  Source
}

// Since is what was done after before was read. A counter that went backwards
// began anew, or lost a removed child (v1 throttle): it yields what is on it
// where it began anew, and nothing where that cannot be told. A change of
// source yields nothing, except from FromNone, where all of it is new.
func (c Counters) Since(before Counters) Counters {
	switch {
	case before.From == FromNone:
		return c
	case before.From != c.From:
		return Counters{From: c.From}
	}
	return Counters{
		ReadBytes:  c.after(c.ReadBytes, before.ReadBytes),
		WriteBytes: c.after(c.WriteBytes, before.WriteBytes),
		From:       c.From,
	}
}

func (c Counters) after(now, before uint64) uint64 {
	switch {
	case now >= before:
		return now - before
	case c.From == FromThrottle:
		return 0
	default:
		return now
	}
}

// DeviceIO is the counters of one disk.
type DeviceIO struct {
	Dev blockdev.Dev
	Counters
}

// counterFile is one kernel file of counters.
type counterFile struct {
	name   string
	source Source
	// parse appends what the file lists to into.
	parse func(content []byte, source Source, into []DeviceIO) ([]DeviceIO, error)
}

// IO reads the counters of a cgroup, its descendants included, of each disk
// that the kernel lists for it: those on which it did I/O. A disk that is not
// listed has counted nothing. ErrVanished: the cgroup is gone.
func (t *Tree) IO(cgroupPath string) (map[blockdev.Dev]Counters, error) {
	var list []DeviceIO
	for _, file := range t.kernel.counterFiles() {
		content, err := t.read(cgroupPath, file.name)
		if errors.Is(err, unix.ENOENT) {
			continue // no BFQ in this kernel; io not enabled here; root of an old v2
		}
		if err != nil {
			return nil, err
		}
		if list, err = file.merge(content, list); err != nil {
			return nil, t.explain("read", cgroupPath, file.name, err)
		}
	}
	io := make(map[blockdev.Dev]Counters, len(list))
	for _, d := range list {
		io[d.Dev] = d.Counters
	}
	return io, nil
}

// merge appends the disks of this file that no better file listed.
func (f counterFile) merge(content []byte, list []DeviceIO) ([]DeviceIO, error) {
	better := len(list)
	list, err := f.parse(content, f.source, list)
	if err != nil || better == 0 {
		return list, err
	}
	kept := better
	for _, d := range list[better:] {
		if !lists(list[:better], d.Dev) {
			list[kept] = d
			kept++
		}
	}
	return list[:kept], nil
}

func lists(list []DeviceIO, dev blockdev.Dev) bool {
	for i := range list {
		if list[i].Dev == dev {
			return true
		}
	}
	return false
}
