// Package journal has where the journal of a volume's ext4 is, behind one interface:
// in the file system itself, or on a device of its own. Each is a type here. The kernel
// thread that writes it is jbd2/NAME for both; the package placement places it.
package journal

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/records"
)

// Journal is where the journal of one volume is.
type Journal interface {
	// Make enters in mke2fs's options where the journal is made. bytes is its
	// length, in whole MiB; 0 leaves that to mke2fs.
	Make(options *ext4.MakeOptions, bytes uint64)
	// Mount enters what a mount needs to find it.
	Mount(options *ext4.MountOptions)
	// Offline enters what e2fsprogs need to replay it.
	Offline(fileSystem *ext4.Offline)
	// Nodes are the device nodes that must be there before the volume is attached.
	Nodes() []string
	// Inside says that the volume's blocks have the journal: a copy of the blocks is
	// a whole file system.
	Inside() bool
	// Thread finds the kernel thread that writes the journal of the file system
	// that is mounted from a device. The error wraps ext4.ErrNoJournal if there is
	// none.
	Thread(dev blockdev.Dev) (pid int, err error)
}

// Of gives the journal of a volume.
func Of(record records.Volume) Journal {
	if record.JournalDevice != "" {
		return external{node: record.JournalDevice}
	}
	return internal{}
}

// internal is in the file system, where mke2fs puts it.
type internal struct{}

func (internal) Make(o *ext4.MakeOptions, bytes uint64)       { o.JournalBytes = bytes }
func (internal) Mount(*ext4.MountOptions)                     {}
func (internal) Offline(*ext4.Offline)                        {}
func (internal) Nodes() []string                              { return nil }
func (internal) Inside() bool                                 { return true }
func (internal) Thread(dev blockdev.Dev) (pid int, err error) { return jbd2(dev) }

// external is a block device that has nothing else. The user gives it.
type external struct{ node string }

func (e external) Make(o *ext4.MakeOptions, _ uint64)           { o.JournalDevice = e.node }
func (e external) Mount(o *ext4.MountOptions)                   { o.JournalDevice = e.node }
func (e external) Offline(fileSystem *ext4.Offline)             { fileSystem.JournalDevice = e.node }
func (e external) Nodes() []string                              { return []string{e.node} }
func (e external) Inside() bool                                 { return false }
func (e external) Thread(dev blockdev.Dev) (pid int, err error) { return jbd2(dev) }

// jbd2 is the thread of a jbd2 journal. It has the name of the device that has the
// journal.
func jbd2(dev blockdev.Dev) (pid int, err error) {
	journal, err := ext4.JournalOf(dev)
	if err != nil {
		return 0, err
	}
	return ext4.JournalThread(journal.Name)
}

// CheckCopy refuses to copy blocks a part of which is in a journal on another device.
// It asks the superblock: the record of a copy says nothing of it.
func CheckCopy(node string) error {
	s, err := ext4.ReadSuperblock(node)
	if err != nil {
		return fmt.Errorf("its image is %w: %w", cause.ErrCorrupt, err)
	}
	if s.External() && s.NeedsRecovery {
		return fmt.Errorf("%w: its journal is on another device and must be replayed first: attach and detach it", cause.ErrUnsupported)
	}
	return nil
}
