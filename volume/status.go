package volume

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/volume/internal/cause"
)

// Status is a volume as it is now: its record, and what the kernel says.
type Status struct {
	Record
	Pool string `json:"pool"`
	// AllocatedBytes is what the image takes of the pool, or a logical volume of its
	// volume group or thin pool; 0 of a thin one that is not active.
	AllocatedBytes uint64 `json:"allocated_bytes"`
	// Snapshots are their names, sorted.
	Snapshots []string `json:"snapshots"`
	// Problem says what is damaged; "" if nothing is known to be.
	Problem string `json:"problem,omitempty"`
	// FreezeAbandoned: the file system is recorded as frozen, and no process
	// works on the volume that would thaw it. Its writers wait until somebody
	// does: [Pool.Repair], a [Keeper], or whoever works on the volume next.
	FreezeAbandoned bool `json:"freeze_abandoned"`

	// What follows is empty or 0 while the volume is detached.

	// LoopDevice is its node, such as "/dev/loop3".
	LoopDevice string `json:"loop_device"`
	// BlockDevice is the node of what is mounted: the loop device's, or that
	// of the volume's own device.
	BlockDevice string `json:"block_device"`
	// DirectIO is what the kernel says, not what was asked for.
	DirectIO   bool   `json:"direct_io"`
	Mountpoint string `json:"mountpoint"`
	// NoDev and NoSuid: how the kernel says that it is mounted.
	NoDev  bool `json:"nodev"`
	NoSuid bool `json:"nosuid"`
	// UsedBytes and FreeBytes are the file system's.
	UsedBytes uint64 `json:"used_bytes"`
	FreeBytes uint64 `json:"free_bytes"`
	// JBD2PID is the jbd2 thread's, and JournalCgroup where it is now;
	// Placed says whether that is where it should be.
	JBD2PID       int    `json:"jbd2_pid"`
	JournalCgroup string `json:"journal_cgroup"`
	Placed        bool   `json:"placed"`
	// ParentCgroup is what carries the weight; WeightInForce what its file
	// says for the disk below, 0 where that has no weights.
	ParentCgroup  string `json:"parent_cgroup"`
	WeightInForce uint64 `json:"weight_in_force"`
	// JournalWeight is that of the journal's cgroup among the parent's
	// children, in the same way.
	JournalWeight uint64 `json:"journal_weight"`
	// JournalReadBytes and JournalWriteBytes were charged to the journal's
	// cgroup on the disk below.
	JournalReadBytes  uint64 `json:"journal_read_bytes"`
	JournalWriteBytes uint64 `json:"journal_write_bytes"`
}

// Inspect reports all of a volume.
func (p *Pool) Inspect(name string) (_ Status, err error) {
	defer func() { err = cause.Public(err) }()
	record, err := p.files.Read(name)
	if err != nil {
		return Status{}, err
	}
	s := p.status(record)
	if record.LVM != nil { // it takes a program to find out
		s.AllocatedBytes, err = p.blocks(record).AllocatedBytes()
		if err != nil && s.Problem == "" {
			s.Problem = err.Error()
		}
	}
	return s, nil
}

// List reports all of every volume, sorted by name. A damaged record is reported as
// the volume's problem.
func (p *Pool) List() (_ []Status, err error) {
	defer func() { err = cause.Public(err) }()
	names, err := p.files.Names()
	if err != nil {
		return nil, err
	}
	all := make([]Status, 0, len(names))
	for _, name := range names {
		status, err := p.Inspect(name)
		if errors.Is(err, ErrNotFound) {
			continue // deleted since
		}
		if err != nil {
			status = Status{Record: Record{Name: name}, Pool: p.dir, Problem: err.Error()}
		}
		all = append(all, status)
	}
	return all, nil
}

// status asks the kernel; what it does not say stays empty.
func (p *Pool) status(record Record) Status {
	s := Status{Record: record, Pool: p.dir, Snapshots: p.files.SnapshotNames(record.Name)}
	var st unix.Stat_t
	switch err := unix.Stat(p.blocks(record).Node(), &st); {
	case err != nil && isInactive(record, err):
	case err != nil:
		s.Problem = fmt.Sprintf("image or device: %v", err)
	case hasImage(record):
		s.AllocatedBytes = uint64(st.Blocks) * 512
	}
	if record.Attachment == nil {
		if s.Problem == "" {
			s.Problem = persistenceProblem(record)
		}
		return s
	}
	a := record.Attachment
	mounted, err := p.isMounted(record)
	switch {
	case err != nil:
		s.Problem = err.Error()
	case a.State == Attached && !mounted:
		s.Problem = "it was attached, and is no longer: daybook volume repair"
	case a.State != Attached:
		s.Problem = fmt.Sprintf("%s was interrupted: daybook volume repair", a.State)
	}
	if record.Frozen && p.freezeAbandoned(record.Name) {
		s.FreezeAbandoned = true
		s.Problem = "its file system is frozen, and the process that froze it has ended; writers wait: run daybook volume repair"
	}
	if !mounted {
		return s
	}
	s.Mountpoint = a.Target
	if devices, err := p.underlying(record); err == nil && len(devices) == 1 {
		s.BlockDevice, s.DirectIO = devices[0].Node, true // a device has no image that could be cached
		if loop := devices[0].Loop; loop != nil {
			s.LoopDevice = s.BlockDevice
			s.DirectIO, _ = loop.DirectIO()
		}
	}
	var mount unix.Statfs_t
	if unix.Statfs(a.Target, &mount) == nil {
		s.UsedBytes = (mount.Blocks - mount.Bfree) * uint64(mount.Bsize)
		s.FreeBytes = mount.Bavail * uint64(mount.Bsize)
		s.NoDev, s.NoSuid = mount.Flags&unix.ST_NODEV != 0, mount.Flags&unix.ST_NOSUID != 0
	}
	p.placementStatus(&s)
	return s
}

// isInactive says that a detached volume's logical volume has no device, which is no
// problem: the next command on the volume activates it.
func isInactive(record Record, err error) bool {
	return record.LVM != nil && record.Attachment == nil && errors.Is(err, fs.ErrNotExist)
}

func (p *Pool) placementStatus(s *Status) {
	now := p.placed(s.Record).Status()
	s.JBD2PID, s.JournalCgroup, s.Placed = now.PID, now.Cgroup, now.Placed
	s.ParentCgroup = s.Attachment.Cgroup
	s.WeightInForce, s.JournalWeight = now.Weight, now.JournalWeight
	s.JournalReadBytes, s.JournalWriteBytes = now.ReadBytes, now.WriteBytes
}
