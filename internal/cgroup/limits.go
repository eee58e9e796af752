package cgroup

import (
	"fmt"
	"math"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// Limit is the maximum I/O of a cgroup and its descendants on one disk; 0 means
// no limit.
type Limit struct {
	ReadBps   uint64 `json:"read_bytes_per_second"`
	WriteBps  uint64 `json:"write_bytes_per_second"`
	ReadIOPS  uint64 `json:"read_ios_per_second"`  // at most 2^32-2
	WriteIOPS uint64 `json:"write_ios_per_second"` // at most 2^32-2
}

// limitKeys are the names of the fields of Limit in io.max.
var limitKeys = []string{"rbps", "wbps", "riops", "wiops"}

// field returns the field for a key of io.max, or nil.
func (l *Limit) field(key string) *uint64 {
	switch key {
	case "rbps":
		return &l.ReadBps
	case "wbps":
		return &l.WriteBps
	case "riops":
		return &l.ReadIOPS
	case "wiops":
		return &l.WriteIOPS
	}
	return nil
}

// Limits reads the own limit of a cgroup on a disk; the limits of its ancestors
// also apply. ErrVanished means that the cgroup is gone.
func (t *Tree) Limits(cgroupPath string, dev blockdev.Dev) (Limit, error) {
	return t.kernel.limit(t, cgroupPath, disk{dev: dev})
}

// SetLimit writes the limit of a cgroup on a disk. With an earlier result of
// Limits, it restores exactly that. It writes only fields that differ, because
// each write makes the kernel start a new throttling slice, and from 6.10 on
// restart all its throttling.
func (t *Tree) SetLimit(cgroupPath string, dev blockdev.Dev, limit Limit) error {
	d := disk{dev: dev}
	if limit.ReadIOPS >= math.MaxUint32 || limit.WriteIOPS >= math.MaxUint32 {
		return fmt.Errorf("cannot limit cgroup %s on %s to %d reads and %d writes a second: the kernel accepts at most %d; use 0 for no limit",
			clean(cgroupPath), d, limit.ReadIOPS, limit.WriteIOPS, uint32(math.MaxUint32-1))
	}
	now, err := t.kernel.limit(t, cgroupPath, d)
	if err != nil || now == limit {
		return err
	}
	return t.kernel.setLimit(t, cgroupPath, d, now, limit)
}
