package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/filesystem"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/operation"
	"github.com/daybook-project/daybook/volume/records"
)

// CreateOptions are the choices of [Pool.Create]. Only the size is needed.
type CreateOptions struct {
	// SizeBytes is from MinSizeBytes to MaxSizeBytes, in whole 4 KiB; with a
	// Device it is 0.
	SizeBytes uint64
	// Provision is Thin if it is empty.
	Provision Provision
	// Device is the node of a block device that becomes the volume, instead
	// of an image in the pool: a logical volume or partition, all of it, on
	// which nothing may be. Provision is OnDevice then.
	Device string
	// VolumeGroup is LVM's, in which a logical volume is created for the volume,
	// instead of an image in the pool: with all its blocks (Full), or in ThinPool.
	VolumeGroup string
	// ThinPool is a thin pool in VolumeGroup. Provision is Thin then.
	ThinPool string
	// FileSystem is Ext4 if it is empty. JFS must have its journal in memory.
	FileSystem FileSystem
	// Weight, 1 to 1000, is the parent cgroup's while the volume is
	// attached; 0 leaves it alone.
	Weight uint64
	// BlockSizeBytes is ext4's: 1024, 2048 or 4096; 0 is 4096.
	BlockSizeBytes uint32
	// InodeSizeBytes is ext4's, 128 to 4096 in powers of two; 0 is 256.
	InodeSizeBytes uint32
	// BytesPerInode sets how many inodes there are, 1024 to 67108864; 0 leaves it to mke2fs.
	BytesPerInode uint32
	// JournalBytes is the journal's length in whole MiB, of ext4 at least 1024 blocks; 0
	// leaves it to mke2fs.
	JournalBytes uint64
	// JournalDevice is the node of a block device that becomes the journal. Nothing may be on it,
	// and its absolute path may have no comma. Delete leaves the journal on it.
	JournalDevice string
	// JournalMemory puts the journal into a slice of persistent memory; nil: it is on a
	// disk.
	JournalMemory *MemoryOptions
	// LazyInit leaves inode tables and journal to be written after the
	// first mount, by a kernel thread in the root cgroup.
	LazyInit bool
	// MountOptions are those of the file system, with commas; NoAtime spares access times.
	MountOptions string
	NoAtime      bool
	// UID, GID and Mode are the root directory's; Mode 0 is 0755.
	UID, GID uint32
	Mode     os.FileMode
	// Labels are kept with the volume.
	Labels map[string]string
	// Progress is called during the writing of a full image.
	Progress Progress
}

// Bounds of mke2fs.
const (
	minJournalBlocks = 1024
	minBytesPerInode = 1024
	maxBytesPerInode = 64 << 20
)

func (o CreateOptions) complete() (CreateOptions, error) {
	switch {
	case o.Provision != "":
	case o.Device != "":
		o.Provision = OnDevice
	case o.VolumeGroup != "" && o.ThinPool == "":
		o.Provision = Full // a linear one
	default:
		o.Provision = Thin
	}
	if o.BlockSizeBytes == 0 {
		o.BlockSizeBytes = 4096
	}
	if o.Mode == 0 {
		o.Mode = 0o755
	}
	errs := []error{CheckWeight(o.Weight), records.CheckLabels(o.Labels), CheckMountOptions(o.MountOptions)}
	switch {
	case o.Device != "" && (o.SizeBytes != 0 || o.Provision != OnDevice):
		errs = append(errs, fmt.Errorf("%w: a device, which has its own size and blocks, excludes size and provision", ErrInvalid))
	case o.Device != "":
	case o.Provision != Thin && o.Provision != Full:
		errs = append(errs, fmt.Errorf("%w provision %q: want %s or %s", ErrInvalid, o.Provision, Thin, Full))
	default:
		errs = append(errs, CheckSize(o.SizeBytes))
	}
	errs = append(errs, o.checkLVM(), o.checkJFS())
	switch o.BlockSizeBytes {
	case 1024, 2048, 4096:
	default:
		errs = append(errs, fmt.Errorf("%w block size: %d bytes, want 1024, 2048 or 4096", ErrInvalid, o.BlockSizeBytes))
	}
	switch o.InodeSizeBytes {
	case 0, 128, 256, 512, 1024, 2048, 4096:
		if o.InodeSizeBytes > o.BlockSizeBytes {
			errs = append(errs, fmt.Errorf("%w inode size: %d bytes are more than a block's %d", ErrInvalid, o.InodeSizeBytes, o.BlockSizeBytes))
		}
	default:
		errs = append(errs, fmt.Errorf("%w inode size: %d bytes, want a power of two from 128 to 4096", ErrInvalid, o.InodeSizeBytes))
	}
	if o.JournalBytes%(1<<20) != 0 || o.Device == "" && o.JournalBytes > o.SizeBytes/2 {
		errs = append(errs, fmt.Errorf("%w journal size: %d bytes, want whole MiB and at most half of the volume", ErrInvalid, o.JournalBytes))
	}
	if least := minJournalBlocks * uint64(o.BlockSizeBytes); o.FileSystem == records.Ext4 && o.JournalBytes != 0 && o.JournalBytes < least {
		errs = append(errs, fmt.Errorf("%w journal size: %d bytes, want at least %d (%d blocks of %d)", ErrInvalid, o.JournalBytes, least, minJournalBlocks, o.BlockSizeBytes))
	}
	if o.BytesPerInode != 0 && (o.BytesPerInode < minBytesPerInode || o.BytesPerInode > maxBytesPerInode) {
		errs = append(errs, fmt.Errorf("%w bytes per inode: %d, want %d to %d", ErrInvalid, o.BytesPerInode, minBytesPerInode, maxBytesPerInode))
	}
	if o.JournalBytes != 0 && o.JournalDevice != "" {
		errs = append(errs, fmt.Errorf("%w: a journal size and a journal device exclude each other", ErrInvalid))
	}
	if o.JournalMemory != nil {
		var err error
		o.JournalMemory, err = o.JournalMemory.completed()
		errs = append(errs, err)
		if o.JournalDevice != "" {
			errs = append(errs, fmt.Errorf("%w: a journal in memory and a journal device exclude each other", ErrInvalid))
		}
		if o.BlockSizeBytes != memoryBlockBytes {
			errs = append(errs, fmt.Errorf("%w block size: %d bytes; with a journal in memory it is %d", ErrInvalid, o.BlockSizeBytes, memoryBlockBytes))
		}
	}
	if o.Mode&^os.ModePerm&^os.ModeSetgid&^os.ModeSticky != 0 {
		errs = append(errs, fmt.Errorf("%w mode %v of the root directory", ErrInvalid, o.Mode))
	}
	return o, errors.Join(errs...)
}

// checkJFS refuses what a JFS cannot have.
func (o CreateOptions) checkJFS() error {
	switch {
	case o.FileSystem == records.Ext4:
		return nil
	case o.FileSystem != records.JFS:
		return fmt.Errorf("%w file system %q: want ext4 or jfs", ErrInvalid, o.FileSystem)
	case o.JournalMemory == nil:
		return fmt.Errorf("%w: a volume with JFS has its journal in memory, because only jfsnvj has threads that can be placed", ErrInvalid)
	case o.BlockSizeBytes != memoryBlockBytes || o.InodeSizeBytes != 0 || o.BytesPerInode != 0 || o.LazyInit:
		return fmt.Errorf("%w: JFS has blocks of %d bytes, and no choice of inodes and of lazy initialization", ErrInvalid, memoryBlockBytes)
	case o.UID != 0 || o.GID != 0 || o.Mode != 0o755:
		return fmt.Errorf("%w: mkfs.jfs cannot set owner and mode of the root directory: change them at the mount point after the first attach", ErrInvalid)
	}
	return nil
}

// checkLVM refuses options that do not describe a logical volume.
func (o CreateOptions) checkLVM() error {
	switch {
	case o.VolumeGroup == "" && o.ThinPool != "":
		return fmt.Errorf("%w: a thin pool is in a volume group, and none is given", ErrInvalid)
	case o.VolumeGroup == "":
		return nil
	case o.Device != "":
		return fmt.Errorf("%w: a device and a volume group exclude each other", ErrInvalid)
	case (o.Provision == Thin) != (o.ThinPool != ""):
		return fmt.Errorf("%w provision: a logical volume is %s in a thin pool, and %s without", ErrInvalid, Thin, Full)
	}
	if err := records.NewLogicalVolume(o.VolumeGroup, o.ThinPool, "id").Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// Check checks the options without a pool. The error wraps ErrInvalid.
func (o CreateOptions) Check() error {
	_, err := o.complete()
	return err
}

// Create makes a volume, not attached. If it fails or ctx ends, it leaves nothing.
func (p *Pool) Create(ctx context.Context, name string, options CreateOptions) (Record, error) {
	record, err := p.create(ctx, name, options)
	if err != nil {
		return Record{}, cause.Failed("cannot create volume %s: %w", name, err)
	}
	return record, nil
}

func (p *Pool) create(ctx context.Context, name string, o CreateOptions) (_ Record, err error) {
	if err := CheckName(name); err != nil {
		return Record{}, err
	}
	if o, err = o.complete(); err != nil {
		return Record{}, err
	}
	if o.JournalMemory, err = o.JournalMemory.located(); err != nil {
		return Record{}, err
	}
	if _, err := os.Lstat(p.files.VolumeDir(name)); err == nil {
		return Record{}, ErrExists
	}
	if err := checkMountOptions(o.record(name, o.SizeBytes, 0)); err != nil {
		return Record{}, err
	}
	if o.JournalDevice == "" {
		return p.createComplete(ctx, name, o)
	}
	return withJournalDevice(ctx, o, func(o CreateOptions) (Record, error) { return p.createComplete(ctx, name, o) })
}

// createComplete makes a volume with checked options.
func (p *Pool) createComplete(ctx context.Context, name string, o CreateOptions) (record Record, err error) {
	switch {
	case o.Device != "":
		return p.createOnDevice(ctx, name, o)
	case o.VolumeGroup != "":
		return p.createOnLVM(ctx, name, o)
	}
	sector, err := p.sectorBytes()
	if err != nil {
		return Record{}, err
	}
	if sector > o.BlockSizeBytes {
		return Record{}, fmt.Errorf("%w block size: the pool's disk has sectors of %d bytes, and blocks may not be smaller", ErrInvalid, sector)
	}
	sector = max(sector, imagefile.SharedSectorBytes(filepath.Join(p.dir, store.WorkDir), o.BlockSizeBytes))
	record = o.record(name, o.SizeBytes, sector)
	if err := journal.Of(record).CheckCreate(ctx); err != nil {
		return Record{}, err
	}
	var w work
	steps := []operation.Step{making(&w, func(ctx context.Context) (work, error) { return p.newWork(ctx, record) })}
	steps = append(steps, p.memorySteps(&w, &record)...)
	steps = append(steps, operation.Step{Name: "made", Do: func(ctx context.Context) error {
		var held *os.File // not needed for an image, which is removed with the work
		if record.JournalDevice != "" {
			held = w.lock.File
		}
		return makeFileSystem(ctx, w.image(), record, held, o)
	}})
	err = p.steps().DoOrUndo(ctx, append(steps, p.publishVolume(&w, &record, o.Progress)...)...)
	return record, err
}

// sectorBytes is the sector size of the pool's disk, the least for direct I/O.
func (p *Pool) sectorBytes() (uint32, error) {
	disk, err := p.disk(Record{})
	if err != nil {
		return 512, nil // a file system without one disk: an attach reports the error
	}
	text, err := disk.Queue("logical_block_size")
	if err != nil {
		return 0, err
	}
	bytes, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("logical block size of %s: %w", disk.Name, err)
	}
	return uint32(bytes), nil
}

// record returns the record of a volume with these options.
func (o CreateOptions) record(name string, sizeBytes uint64, sectorBytes uint32) Record {
	record := Record{
		Name: name, ID: records.NewID(), Created: time.Now().UTC(), SizeBytes: sizeBytes, Provision: o.Provision, Device: o.Device,
		SectorBytes: sectorBytes, Weight: o.Weight, Labels: maps.Clone(o.Labels), MountOptions: o.MountOptions, NoAtime: o.NoAtime,
		JournalDevice: o.JournalDevice, FileSystem: o.FileSystem,
	}
	if o.VolumeGroup != "" {
		record.LVM = records.NewLogicalVolume(o.VolumeGroup, o.ThinPool, record.ID)
	}
	record.JournalMemory = o.JournalMemory.journal()
	record.SetFormat()
	return record
}

// makeFileSystem makes the file system on an image that reads as zeros, or on a device.
// If lock is not nil, the tool keeps it open until it has ended.
func makeFileSystem(ctx context.Context, image string, record Record, lock *os.File, o CreateOptions) error {
	if record.FileSystem == records.JFS {
		return filesystem.MakeJFS(ctx, record, image, lock, o.JournalBytes)
	}
	zeros, err := backing.Of(filepath.Dir(image), record, nil).ReadsZeros(ctx)
	if err != nil {
		return err
	}
	owner := fmt.Sprintf("root_owner=%d:%d", o.UID, o.GID)
	make := ext4.MakeOptions{
		BlockSizeBytes: o.BlockSizeBytes, BytesPerInode: o.BytesPerInode,
		Zeros: !o.LazyInit && zeros, Lazy: o.LazyInit, Lock: lock, Extended: []string{owner}, Arguments: []string{"-U", record.ID},
	}
	journal.Of(record).Make(&make, o.JournalBytes)
	if o.InodeSizeBytes != 0 {
		make.Arguments = append(make.Arguments, "-I", strconv.FormatUint(uint64(o.InodeSizeBytes), 10))
	}
	if err := ext4.Make(ctx, image, make); err != nil {
		return cause.NoSpace(err)
	}
	if o.Mode == 0o755 {
		return nil
	}
	// mke2fs has root_perms only since 1.47.1.
	return ext4.Offline{Device: image, Lock: lock}.SetRootMode(ctx, unixMode(o.Mode))
}

// ParseMode reads the permissions of a root directory, octal as chmod(1) takes
// them: with set-group-ID (2000) and the sticky bit (1000), without set-user-ID,
// which has no meaning there. The error wraps ErrInvalid.
func ParseMode(text string) (os.FileMode, error) {
	bits, err := strconv.ParseUint(text, 8, 16)
	if err != nil || bits == 0 || bits > 0o3777 {
		return 0, fmt.Errorf("%w mode %q: want octal permissions, such as 0750", ErrInvalid, text)
	}
	mode := os.FileMode(bits & 0o777)
	if bits&0o2000 != 0 {
		mode |= os.ModeSetgid
	}
	if bits&0o1000 != 0 {
		mode |= os.ModeSticky
	}
	return mode, nil
}

// unixMode converts permission bits to those of the kernel.
func unixMode(mode os.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&os.ModeSetgid != 0 {
		bits |= 0o2000
	}
	if mode&os.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}
