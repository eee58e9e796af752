// Package journal provides the places of an ext4 journal behind one interface: in the file
// system itself, on a separate device, or in a slice of persistent memory. Each is a type
// here. The kernel thread that writes it is jbd2/NAME for the first two, and
// nvj/DISK-commit with the threads nvj/DISK:N for the journal in memory; the package
// placement places them.
package journal

import (
	"context"
	"os"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/records"
)

// Journal is where the journal of one volume is.
type Journal interface {
	// Make sets the journal in mke2fs's options. bytes is its length, in whole MiB; 0
	// is mke2fs's default.
	Make(options *ext4.MakeOptions, bytes uint64)
	// Mount sets the mount options that name the journal.
	Mount(options *ext4.MountOptions)
	// Offline sets what e2fsprogs need to replay it.
	Offline(fileSystem *ext4.Offline)
	// Nodes are the device nodes that must exist before the volume is attached.
	Nodes() []string
	// Inside says that the journal is in the volume's blocks, so that a copy of the
	// blocks is a complete file system.
	Inside() bool
	// Thread finds, among those that read lists, the kernel thread that writes the
	// journal of the file system that is mounted from a device. The error wraps
	// ext4.ErrNoJournal if there is none.
	Thread(dev blockdev.Dev, read ReadThreads) (pid int, err error)
	// Workers finds the further threads of the same journal.
	Workers(dev blockdev.Dev, read ReadThreads) (pids []int, err error)

	// CheckCreate refuses before anything changes what Reserve and Format would refuse.
	CheckCreate(ctx context.Context) error
	// Reserve enters the memory that the journal needs in the table of its region, and
	// returns where it is; nil for a journal on a disk.
	Reserve(ctx context.Context, user User) (*records.MemoryJournal, error)
	// Format makes an empty journal in the memory. The tool keeps held open until it
	// has ended.
	Format(ctx context.Context, held *os.File) error
	// CheckDelete refuses what Delete would refuse, before anything changes.
	CheckDelete() error
	// Delete wipes the memory and frees it. Memory that is free already is no error.
	// The error wraps region.ErrGone if the region is gone.
	Delete(ctx context.Context) error

	// Check refuses before a mount of the file system on a device what would make it
	// fail.
	Check(ctx context.Context, device string) error
	// Recover writes what is only in memory to the file system of a detached volume,
	// so that the tools of e2fsprogs accept it, and says whether there was anything.
	// The tool keeps held open until it has ended.
	Recover(ctx context.Context, device string, held *os.File) (recovered bool, err error)
	// Repair recovers the journal of a detached volume, or if it is damaged and the file
	// system does not need it, formats it again. It says what it did; "" is nothing.
	Repair(ctx context.Context, device string, held *os.File) (what string, err error)
	// Grow makes the mounted file system longer.
	Grow(ctx context.Context, device, directory string, sizeBytes uint64) error
}

// User names for people who has a slice of memory.
type User struct{ Volume, Pool string }

// ReadThreads lists the kernel threads of journals.
type ReadThreads func() (ext4.JournalThreads, error)

// Of returns the journal of a volume.
func Of(record records.Volume) Journal {
	switch {
	case record.JournalMemory != nil:
		return memory{volume: record, at: *record.JournalMemory}
	case record.JournalDevice != "":
		return external{node: record.JournalDevice, id: record.JournalDeviceID()}
	}
	return internal{}
}

// onDisk is what needs no memory.
type onDisk struct{}

func (onDisk) Workers(blockdev.Dev, ReadThreads) ([]int, error)              { return nil, nil }
func (onDisk) CheckCreate(context.Context) error                             { return nil }
func (onDisk) Reserve(context.Context, User) (*records.MemoryJournal, error) { return nil, nil }
func (onDisk) Format(context.Context, *os.File) error                        { return nil }
func (onDisk) CheckDelete() error                                            { return nil }
func (onDisk) Delete(context.Context) error                                  { return nil }
func (onDisk) Check(context.Context, string) error                           { return nil }
func (onDisk) Recover(context.Context, string, *os.File) (recovered bool, err error) {
	return false, nil
}
func (onDisk) Repair(context.Context, string, *os.File) (what string, err error) { return "", nil }
func (onDisk) Grow(ctx context.Context, device, _ string, sizeBytes uint64) error {
	return ext4.Grow(ctx, device, sizeBytes)
}

// internal is a journal in the file system.
type internal struct{ onDisk }

func (internal) Make(o *ext4.MakeOptions, bytes uint64)                 { o.JournalBytes = bytes }
func (internal) Mount(*ext4.MountOptions)                               {}
func (internal) Offline(*ext4.Offline)                                  {}
func (internal) Nodes() []string                                        { return nil }
func (internal) Inside() bool                                           { return true }
func (internal) Thread(dev blockdev.Dev, read ReadThreads) (int, error) { return jbd2(dev, read) }

// external is a journal on a block device of its own, which the user names.
type external struct {
	onDisk
	node string
	// id is the UUID with which Make makes it.
	id string
}

func (e external) Make(o *ext4.MakeOptions, _ uint64) {
	o.JournalDevice, o.JournalUUID = e.node, e.id
}

func (e external) Mount(o *ext4.MountOptions)                             { o.JournalDevice = e.node }
func (e external) Offline(fileSystem *ext4.Offline)                       { fileSystem.JournalDevice = e.node }
func (e external) Nodes() []string                                        { return []string{e.node} }
func (e external) Inside() bool                                           { return false }
func (e external) Thread(dev blockdev.Dev, read ReadThreads) (int, error) { return jbd2(dev, read) }

// jbd2 finds the thread of a jbd2 journal, by the name of the journal's device.
func jbd2(dev blockdev.Dev, read ReadThreads) (pid int, err error) {
	journal, err := ext4.JournalOf(dev)
	if err != nil {
		return 0, err
	}
	threads, err := read()
	if err != nil {
		return 0, err
	}
	return threads.Of(journal.Name)
}
