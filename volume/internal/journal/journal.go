// Package journal provides the places of an ext4 journal behind one interface: in the file
// system itself, or on a separate device. Each is a type here. The kernel thread that
// writes it is jbd2/NAME for both; the package placement places it.
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
}

// ReadThreads lists the kernel threads of journals.
type ReadThreads func() (ext4.JournalThreads, error)

// Of returns the journal of a volume.
func Of(record records.Volume) Journal {
	if record.JournalDevice != "" {
		return external{node: record.JournalDevice}
	}
	return internal{}
}

// internal is a journal in the file system.
type internal struct{}

func (internal) Make(o *ext4.MakeOptions, bytes uint64)                 { o.JournalBytes = bytes }
func (internal) Mount(*ext4.MountOptions)                               {}
func (internal) Offline(*ext4.Offline)                                  {}
func (internal) Nodes() []string                                        { return nil }
func (internal) Inside() bool                                           { return true }
func (internal) Thread(dev blockdev.Dev, read ReadThreads) (int, error) { return jbd2(dev, read) }

// external is a journal on a block device of its own, which the user names.
type external struct{ node string }

func (e external) Make(o *ext4.MakeOptions, _ uint64)                     { o.JournalDevice = e.node }
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

// CheckCopy refuses to copy blocks if some of their changes are only in a journal on
// another device. It reads the superblock, because the record of a copy does not have it.
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
