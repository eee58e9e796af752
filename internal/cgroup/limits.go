package cgroup

import (
	"fmt"
	"math"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// Limit is what a cgroup and its descendants may do on one disk at most; 0 is
// no limit.
type Limit struct {
	ReadBps   uint64 `json:"read_bytes_per_second"`
	WriteBps  uint64 `json:"write_bytes_per_second"`
	ReadIOPS  uint64 `json:"read_ios_per_second"`  // at most 2^32-2
	WriteIOPS uint64 `json:"write_ios_per_second"` // at most 2^32-2
}

// limitKeys are the names that io.max gives the fields of Limit.
var limitKeys = []string{"rbps", "wbps", "riops", "wiops"}

// field gives the field that a key of io.max names, or nil.
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

// Limits reads a cgroup's own limit on a disk; those of its ancestors hold
// besides. ErrVanished: the cgroup is gone.
func (t *Tree) Limits(cgroupPath string, dev blockdev.Dev) (Limit, error) {
	return t.kernel.limit(t, cgroupPath, disk{dev: dev})
}

// SetLimit writes a cgroup's limit on a disk. Given what Limits said before,
// it is the exact restore. Only the fields that differ are written: the kernel
// starts a new throttling slice, and from 6.10 on the whole of its throttling,
// at any write.
func (t *Tree) SetLimit(cgroupPath string, dev blockdev.Dev, limit Limit) error {
	d := disk{dev: dev}
	if limit.ReadIOPS >= math.MaxUint32 || limit.WriteIOPS >= math.MaxUint32 {
		return fmt.Errorf("cannot limit cgroup %s on %s to %d reads and %d writes a second: the kernel takes at most %d; use 0 for no limit",
			clean(cgroupPath), d, limit.ReadIOPS, limit.WriteIOPS, uint32(math.MaxUint32-1))
	}
	now, err := t.kernel.limit(t, cgroupPath, d)
	if err != nil || now == limit {
		return err
	}
	return t.kernel.setLimit(t, cgroupPath, d, now, limit)
}
