package backing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/filesystem"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/records"
)

// logical is a logical volume of LVM that Daybook creates and removes: linear with all
// its blocks (thick), or in a thin pool (thin).
//
// The name of a logical volume has the UUID of its volume or snapshot, and is recorded
// before it is created. So a repair finds what a killed process left, and nothing else is
// ever removed.
type logical struct {
	device
	tool lvm
}

// at is the volume's logical volume.
func (l logical) at() records.LogicalVolume { return *l.record.LVM }

func (l logical) thin() bool { return l.at().ThinPool != "" }

func (l logical) Node() string { return l.at().Node() }

// Create creates the logical volume. LVM wipes old signatures at its beginning.
func (l logical) Create(ctx context.Context, held *os.File) error {
	return lvm{held}.create(ctx, l.at(), l.record.SizeBytes, l.record.Name)
}

func (l logical) Delete(ctx context.Context) error {
	return left(errors.Join(l.tool.remove(ctx, temporary(l.at())), l.tool.remove(ctx, l.at())))
}

// CheckGroup refuses a missing volume group or thin pool. The error wraps ErrInvalid.
func CheckGroup(ctx context.Context, lv records.LogicalVolume) error {
	there, err := lvm{}.hasGroup(ctx, lv.VolumeGroup)
	if err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("%w volume group: there is no %s (vgs shows them)", cause.ErrInvalid, lv.VolumeGroup)
	}
	if lv.ThinPool == "" {
		return nil
	}
	pool, err := lvm{}.find(ctx, records.LogicalVolume{VolumeGroup: lv.VolumeGroup, Name: lv.ThinPool})
	if err != nil {
		return err
	}
	if pool == nil || pool.Type != thinPoolType {
		return fmt.Errorf("%w thin pool: %s has none with the name %s (lvs %s shows them)", cause.ErrInvalid, lv.VolumeGroup, lv.ThinPool, lv.VolumeGroup)
	}
	return nil
}

func (l logical) CheckDelete(ctx context.Context, snapshots []records.Snapshot) error {
	for _, snapshot := range snapshots {
		if err := l.CheckDeleteSnapshot(ctx, snapshot); err != nil {
			return err
		}
	}
	return checkDelete(ctx, l.at())
}

func (l logical) CheckDeleteSnapshot(ctx context.Context, snapshot records.Snapshot) error {
	if snapshot.LVM == nil {
		return nil
	}
	return checkDelete(ctx, *snapshot.LVM)
}

func checkDelete(ctx context.Context, lv records.LogicalVolume) error {
	there, err := lvm{}.find(ctx, lv)
	if err != nil || there == nil {
		return err
	}
	if err := (lvm{}).checkRemove(ctx, lv, *there); err != nil {
		return err
	}
	// An inactive logical volume has no node.
	if err := CheckUnused(lv.Node()); err != nil && !IsGone(err) {
		return err
	}
	return nil
}

// ErrGroupGone is wrapped by an error if the host has no volume group of that name. It
// wraps ErrCorrupt.
var ErrGroupGone = fmt.Errorf("%w", cause.ErrCorrupt)

// Check also activates the logical volume.
func (l logical) Check(ctx context.Context) error {
	if err := l.Activate(ctx); err != nil {
		return err
	}
	return checkNode(l.Node(), l.record)
}

func (l logical) Activate(ctx context.Context) error { return l.activate(ctx, l.at()) }

func (l logical) activate(ctx context.Context, lv records.LogicalVolume) error {
	if _, err := os.Stat(lv.Node()); err == nil {
		return nil
	}
	there, err := l.tool.find(ctx, lv)
	if err != nil {
		return err
	}
	if there == nil {
		return fmt.Errorf("its logical volume %s is missing: it is %w", lv, cause.ErrCorrupt)
	}
	return l.tool.activate(ctx, lv)
}

// ReadsZeros: a linear logical volume has the old content of the disk. So have the rests of
// chunks of a thin one, unless its pool clears each chunk that it hands out.
func (l logical) ReadsZeros(ctx context.Context) (bool, error) {
	if !l.thin() {
		return false, nil
	}
	pool, err := l.tool.find(ctx, records.LogicalVolume{VolumeGroup: l.at().VolumeGroup, Name: l.at().ThinPool})
	return pool != nil && (pool.Zero == "zero" || pool.Zero == "1"), err
}

func (l logical) CheckUnused() error { return CheckUnused(l.Node()) }

func (l logical) Open(ctx context.Context, _ OpenOptions) (Device, error) {
	if err := l.Activate(ctx); err != nil {
		return Device{}, err
	}
	return opened(l.Node())
}

func (l logical) Opened(ReadLoops) ([]Device, error) { return attached(l.Node(), l.record) }

// CheckResize refuses to resize a thick volume with snapshots, because LVM does so.
func (l logical) CheckResize(ctx context.Context, _ uint64) error {
	snapshots, err := l.tool.snapshotsOf(ctx, l.at())
	if err != nil || l.thin() || len(snapshots) == 0 {
		return err
	}
	return fmt.Errorf("it is %w: LVM changes the length of a thick volume only without snapshots, and %s is one; delete the volume's snapshots first", cause.ErrBusy, snapshots[0])
}

func (l logical) SetLength(ctx context.Context, bytes uint64) error {
	return l.tool.setLength(ctx, l.at(), bytes)
}

func (l logical) Length() (uint64, error) {
	facts, err := LookAt(l.Node())
	return facts.Bytes, err
}

func (l logical) CheckCopy() error { return nil }

// Snapshot has LVM make the snapshot. The kernel freezes the file system of a mounted
// volume for that moment. The snapshot of a thick volume reserves as much space as the
// volume, so that it cannot overflow.
func (l logical) Snapshot(ctx context.Context, to Copy, _ Freeze) (records.Method, float64, error) {
	if err := l.sync(ctx, to.Mountpoint); err != nil {
		return "", 0, err
	}
	return records.LVMSnapshot, 0, lvm{to.Held}.snapshot(ctx, l.at(), *to.Snapshot.LVM, l.record.SizeBytes, l.record.Name, readOnly)
}

func (l logical) sync(ctx context.Context, mountpoint string) error {
	if mountpoint == "" {
		return filesystem.CheckCopy(l.record, l.Node())
	}
	err := atomicfile.SyncFileSystem(mountpoint) // so that less is written while it is frozen
	if err == nil {
		return nil
	}
	err = fmt.Errorf("its file system cannot write what it has in memory: %w", err)
	if _, problem := l.find(ctx); problem != nil {
		err = fmt.Errorf("%w (%w)", err, problem)
	}
	return err
}

// Clone shares blocks in a thin pool. A clone of a thick volume is a full copy. That of an
// attached volume is copied from a temporary snapshot.
func (l logical) Clone(ctx context.Context, snapshot *records.Snapshot, to Copy, freeze Freeze) error {
	source, size := l.at(), l.record.SizeBytes
	if snapshot != nil {
		source, size = *snapshot.LVM, snapshot.SizeBytes
	} else if err := l.sync(ctx, to.Mountpoint); err != nil {
		return err
	}
	target, tool := *to.Volume.LVM, lvm{to.Held}
	if target.ThinPool != "" {
		return tool.snapshot(ctx, source, target, size, to.Volume.Name, writable)
	}
	if snapshot == nil && freeze != nil {
		source = temporary(target)
		if err := tool.snapshot(ctx, l.at(), source, size, to.Volume.Name, readOnly); err != nil {
			return err
		}
	}
	err := tool.create(ctx, target, size, to.Volume.Name)
	if err == nil {
		// A new logical volume has the old content of the disk.
		err = imagefile.CopyOver(ctx, source.Node(), target.Node(), size, to.Progress)
	}
	if source == temporary(target) {
		// Not with ctx, which may be why it failed.
		err = errors.Join(err, l.tool.remove(context.WithoutCancel(ctx), source))
	}
	return err
}

// temporary is the snapshot from which a thick clone of an attached volume is copied.
func temporary(target records.LogicalVolume) records.LogicalVolume {
	return records.LogicalVolume{VolumeGroup: target.VolumeGroup, Name: target.Name + "-source"}
}

func (l logical) SnapshotNode(snapshot records.Snapshot) string {
	if snapshot.LVM == nil {
		return ""
	}
	return snapshot.LVM.Node()
}

func (l logical) ActivateSnapshot(ctx context.Context, snapshot records.Snapshot) error {
	if snapshot.LVM == nil {
		return fmt.Errorf("the record of its snapshot %s is %w: it names no logical volume", snapshot.Name, cause.ErrCorrupt)
	}
	return l.activate(ctx, *snapshot.LVM)
}

func (l logical) DeleteSnapshot(ctx context.Context, snapshot records.Snapshot) error {
	if snapshot.LVM == nil {
		return nil
	}
	return left(l.tool.remove(ctx, *snapshot.LVM))
}

// AllocatedBytes also fails if the thin pool is full or damaged.
func (l logical) AllocatedBytes(ctx context.Context) (uint64, error) {
	there, err := l.find(ctx)
	if there == nil {
		return 0, err
	}
	return there.allocated(), err
}

// AllocatedLogical is the space that logical volumes take in their volume groups or thin
// pools. Those that are missing are not in it. It runs lvs once for each volume group.
func AllocatedLogical(ctx context.Context, all []records.LogicalVolume) (map[records.LogicalVolume]uint64, error) {
	selections := map[string][]string{}
	for _, lv := range all {
		selections[lv.VolumeGroup] = append(selections[lv.VolumeGroup], "lv_name="+lv.Name)
	}
	allocated := map[records.LogicalVolume]uint64{}
	for group, names := range selections {
		reported, err := lvm{}.list(ctx, group, strings.Join(names, " || "))
		if err != nil {
			return nil, err
		}
		for _, lv := range all {
			i := slices.IndexFunc(reported, func(f found) bool { return f.Name == lv.Name && lv.VolumeGroup == group })
			if i >= 0 {
				allocated[lv] = reported[i].allocated()
			}
		}
	}
	return allocated, nil
}

// PoolError is what is wrong with the thin pool of a volume. It may be the cause of errors of
// the file system.
type PoolError struct{ text string }

func (e PoolError) Error() string { return e.text }

// find returns the logical volume, also with the error that its thin pool is full or damaged.
func (l logical) find(ctx context.Context) (*found, error) {
	at := l.at()
	selection := "lv_name=" + at.Name
	if l.thin() {
		selection += " || lv_name=" + at.ThinPool
	}
	all, err := l.tool.list(ctx, at.VolumeGroup, selection)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(f found) bool { return f.Name == at.Name })
	if i < 0 {
		return nil, fmt.Errorf("its logical volume %s is missing: it is %w", at, cause.ErrCorrupt)
	}
	for _, f := range all {
		if problem, bad := f.poolProblem(); bad && f.Name == at.ThinPool {
			return &all[i], PoolError{fmt.Sprintf("its thin pool %s/%s is %s", at.VolumeGroup, at.ThinPool, problem)}
		}
	}
	return &all[i], nil
}
