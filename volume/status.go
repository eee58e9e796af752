package volume

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/cause"
)

// Status is the present state of a volume: its record, and what the kernel reports.
type Status struct {
	Record
	Pool string `json:"pool"`
	// AllocatedBytes is the space that the image takes in the pool, or a logical volume
	// in its volume group or thin pool; 0 for a thin one that is not active.
	AllocatedBytes uint64 `json:"allocated_bytes"`
	// Snapshots are their names, sorted.
	Snapshots []string `json:"snapshots"`
	// Problem says what is damaged, or what a killed process left unfinished; "" if
	// nothing is known.
	Problem string `json:"problem,omitempty"`
	// FreezeAbandoned: the file system is recorded as frozen, and no process works on
	// the volume that would thaw it. Its writers wait until [Pool.Repair], a [Keeper]
	// or the next operation on the volume thaws it.
	FreezeAbandoned bool `json:"freeze_abandoned"`

	// The following fields are empty or 0 while the volume is detached.

	// LoopDevice is its node, such as "/dev/loop3".
	LoopDevice string `json:"loop_device"`
	// BlockDevice is the node of the mounted device: the loop device, or the volume's
	// own device.
	BlockDevice string `json:"block_device"`
	// DirectIO is what the kernel reports, not what was requested.
	DirectIO   bool   `json:"direct_io"`
	Mountpoint string `json:"mountpoint"`
	// NoDev and NoSuid are mount flags, as the kernel reports them.
	NoDev  bool `json:"nodev"`
	NoSuid bool `json:"nosuid"`
	// UsedBytes and FreeBytes are the file system's.
	UsedBytes uint64 `json:"used_bytes"`
	FreeBytes uint64 `json:"free_bytes"`
	// JBD2PID is the process ID of the jbd2 thread, and JournalCgroup its present
	// cgroup; Placed says whether that is the planned one.
	JBD2PID       int    `json:"jbd2_pid"`
	JournalCgroup string `json:"journal_cgroup"`
	Placed        bool   `json:"placed"`
	// ParentCgroup is the cgroup with the weight; WeightInForce is the value of its
	// file for the underlying disk, 0 if that has no weights.
	ParentCgroup  string `json:"parent_cgroup"`
	WeightInForce uint64 `json:"weight_in_force"`
	// JournalWeight is that of the journal's cgroup among the parent's
	// children, in the same way.
	JournalWeight uint64 `json:"journal_weight"`
	// JournalReadBytes and JournalWriteBytes were charged to the journal's
	// cgroup on the underlying disk.
	JournalReadBytes  uint64 `json:"journal_read_bytes"`
	JournalWriteBytes uint64 `json:"journal_write_bytes"`
	// JournalProcessorLimit is the cgroup whose processor limit (cpu.max) the jbd2 thread
	// is under; "" if there is none. All who sync the volume wait for a throttled thread.
	JournalProcessorLimit string `json:"journal_processor_limit,omitempty"`
	// Memory is the use of the slice of a journal in memory; nil for a journal on a disk.
	Memory *MemoryUse `json:"memory_journal,omitempty"`
}

// Inspect gives the full report on a volume.
func (p *Pool) Inspect(ctx context.Context, name string) (_ Status, err error) {
	defer func() { err = cause.Public(err) }()
	return p.readHost().inspect(ctx, name)
}

func (h *host) inspect(ctx context.Context, name string) (Status, error) {
	record, err := h.pool.files.Read(name)
	if err != nil {
		return Status{}, err
	}
	s := h.status(record)
	if record.LVM != nil { // only lvs knows it
		s.AllocatedBytes, err = h.pool.blocks(record).AllocatedBytes(ctx)
		var pool backing.PoolError
		switch {
		case err != nil && s.Problem == "":
			s.Problem = err.Error()
		case errors.As(err, &pool):
			// First, because a repair of the file system writes to the pool.
			s.Problem = err.Error() + "; " + s.Problem
		}
	}
	return s, nil
}

// List gives the full report on every volume, sorted by name. A damaged record is
// reported as the volume's problem.
func (p *Pool) List(ctx context.Context) (_ []Status, err error) {
	defer func() { err = cause.Public(err) }()
	names, err := p.files.Names()
	if err != nil {
		return nil, err
	}
	h := p.readHost()
	all := make([]Status, 0, len(names))
	for _, name := range names {
		status, err := h.inspect(ctx, name)
		if errors.Is(err, ErrNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			status = Status{Record: Record{Name: name}, Pool: p.dir, Problem: err.Error()}
		}
		all = append(all, status)
	}
	return all, nil
}

func (p *Pool) status(record Record) Status { return p.readHost().status(record) }

// status asks the kernel; what it does not report stays empty.
func (h *host) status(record Record) Status {
	p := h.pool
	s := Status{Record: record, Pool: p.dir, Snapshots: p.files.SnapshotNames(record.Name)}
	var st unix.Stat_t
	nodeErr := unix.Stat(p.blocks(record).Node(), &st)
	if nodeErr == nil && record.InPool() {
		s.AllocatedBytes = uint64(st.Blocks) * 512
	}
	a := record.Attachment
	var device backing.Device
	mounted := false
	var err error
	if a != nil {
		device, mounted, err = h.mountedFrom(record)
	}
	unfinished := p.unfinished(record, mounted)
	if unfinished != "" && p.inProgress(record.Name) {
		unfinished = ""
	}
	s.Problem = problem(record, nodeErr, unfinished)
	if err != nil {
		s.Problem = err.Error()
	}
	if a == nil {
		return s
	}
	if record.Frozen && p.freezeAbandoned(record.Name) {
		s.FreezeAbandoned, s.Problem = true, freezeAbandonedProblem
	}
	if !mounted {
		return s
	}
	s.Mountpoint = a.Target
	s.BlockDevice, s.DirectIO = device.Node, true // a device has no image that could be cached
	if device.Loop != nil {
		s.LoopDevice = s.BlockDevice
		s.DirectIO, _ = device.Loop.DirectIO()
	}
	var mount unix.Statfs_t
	if unix.Statfs(a.Target, &mount) == nil {
		s.UsedBytes = (mount.Blocks - mount.Bfree) * uint64(mount.Bsize)
		s.FreeBytes = mount.Bavail * uint64(mount.Bsize)
		s.NoDev, s.NoSuid = mount.Flags&unix.ST_NODEV != 0, mount.Flags&unix.ST_NOSUID != 0
	}
	if name, err := blockdev.DeviceName(device.Dev); err == nil && s.Problem == "" {
		s.Problem = fileSystemProblem(record, mount.Flags, ext4Errors(record, name))
	}
	s.Memory = memoryUse(record, device.Dev)
	h.placementStatus(&s)
	return s
}

func (h *host) placementStatus(s *Status) {
	now := h.pool.placedOn(func() *host { return h }, s.Record).Status()
	s.JBD2PID, s.JournalCgroup, s.Placed = now.PID, now.Cgroup, now.Placed
	s.ParentCgroup = s.Attachment.Cgroup
	s.WeightInForce, s.JournalWeight = now.Weight, now.JournalWeight
	s.JournalProcessorLimit = now.ProcessorLimit
	s.JournalReadBytes, s.JournalWriteBytes = now.ReadBytes, now.WriteBytes
}
