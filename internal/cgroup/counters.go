package cgroup

import (
	"errors"

	"github.com/daybook-project/daybook/internal/blockdev"
	"golang.org/x/sys/unix"
)

// Source is the kernel counter of a value. Values of different sources must not
// be subtracted from each other.
type Source uint8

// The counters, with the I/O that each of them misses.
const (
	// FromNone is the zero value: no counter listed the disk yet.
	FromNone Source = iota
	// FromBFQ is v1 blkio.bfq.io_service_bytes_recursive. It counts requests
	// when they enter the scheduler, only on disks that use BFQ, from 0 when a
	// disk is switched to BFQ. A bio that is merged into a queued request is
	// not counted (0.2 % with 8 threads writing interleaved 4 KiB). The I/O of
	// a removed child stays in its parent's count.
	FromBFQ
	// FromThrottle is v1 blkio.throttle.io_service_bytes_recursive. It counts
	// bios under every scheduler before any merge. Kernels from 6.10 on count
	// only on disks that have or had a blkio.throttle limit. The I/O of a
	// removed child is subtracted from its parent's count, which therefore
	// decreases.
	FromThrottle
	// FromIOStat is v2 io.stat. It counts bios under every scheduler. The I/O
	// of a removed child stays in its parent's count.
	FromIOStat
)

// String returns the name of the kernel file.
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

// Counters are the bytes of a cgroup and its descendants on one disk since the
// counter started.
type Counters struct {
	ReadBytes, WriteBytes uint64
	From                  Source
}

// Since returns the difference to an earlier value. A counter that decreased
// either restarted, or lost a removed child (v1 throttle). For a restart Since
// returns the new count; if the cause is unknown it returns nothing. A change
// of source returns nothing, except from FromNone, where the whole count is
// new.
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
	// parse appends the counters of the file to into.
	parse func(content []byte, source Source, into []DeviceIO) ([]DeviceIO, error)
}

// IO reads the counters of a cgroup, with its descendants, for each disk that
// the kernel lists: those on which it did I/O. A disk that is not listed has
// counted nothing. ErrVanished means that the cgroup is gone.
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
