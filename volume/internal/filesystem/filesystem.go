// Package filesystem hides which file system a volume has, ext4 or JFS, from operations
// that do the same with both.
package filesystem

import (
	"context"
	"fmt"
	"os"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/jfs"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/records"
)

// MemoryType is the type of a volume's file system while its journal is in memory, and the
// name of the kernel module.
func MemoryType(record records.Volume) string {
	if record.FileSystem == records.JFS {
		return ext4.MemoryJFSType
	}
	return ext4.MemoryType
}

// Documentation is the page about that module.
func Documentation(record records.Volume) string {
	return "docs/" + MemoryType(record) + ".md"
}

// UUID reads the UUID of a volume's file system, also of one whose superblock is otherwise
// damaged.
func UUID(record records.Volume, node string) (ext4.UUID, error) {
	if record.FileSystem == records.JFS {
		s, err := jfs.ReadSuperblock(node)
		return s.UUID, err
	}
	return ext4.ReadUUID(node)
}

// InMemory says whether some of the changes of a volume's file system are only in its
// journal in memory, so that its tools refuse it.
func InMemory(record records.Volume, node string) (bool, error) {
	if record.FileSystem == records.JFS {
		s, err := jfs.ReadSuperblock(node)
		return s.InMemory, err
	}
	s, err := ext4.ReadSuperblock(node)
	return s.InMemory, err
}

// NeedsRecovery says whether a journal, wherever it is, has changes that are not in the
// volume's file system yet.
func NeedsRecovery(record records.Volume, node string) (bool, error) {
	if record.FileSystem == records.JFS {
		s, err := jfs.ReadSuperblock(node)
		return s.InMemory, err // its journal on the disk is unused
	}
	s, err := ext4.ReadSuperblock(node)
	return s.NeedsRecovery, err
}

// CheckCopy refuses to copy blocks if some of their changes are only in a journal on
// another device, or in memory. It reads the superblock, because the record of a copy does
// not have it.
func CheckCopy(record records.Volume, node string) error {
	inMemory, err := InMemory(record, node)
	if err != nil {
		return fmt.Errorf("its image is %w: %w", cause.ErrCorrupt, err)
	}
	if inMemory {
		return fmt.Errorf("%w: some of its changes are only in its journal in memory: daybook volume repair writes them to it", cause.ErrUnsupported)
	}
	if record.FileSystem == records.JFS {
		return nil
	}
	s, err := ext4.ReadSuperblock(node)
	if err == nil && s.External() && s.NeedsRecovery {
		err = fmt.Errorf("%w: its journal is on another device and must be replayed first: attach and detach it", cause.ErrUnsupported)
	}
	return err
}

// Check checks a detached file system with its own tool, and with repair corrects what the
// tool corrects without questions. The error wraps cause.ErrCorrupt if errors are left.
func Check(ctx context.Context, record records.Volume, target ext4.Offline, repair bool) (report string, corrected bool, err error) {
	if record.FileSystem == records.JFS {
		report, corrected, err = jfs.Offline{Device: target.Device, Lock: target.Lock}.Check(ctx, repair)
	} else {
		report, corrected, err = target.Check(ctx, repair)
	}
	return report, corrected, cause.Damaged(err)
}

// Renew makes a file system of its own of a copy of a volume's: it checks it, and sets
// another UUID.
func Renew(ctx context.Context, record records.Volume, target ext4.Offline, id string) error {
	if record.FileSystem != records.JFS {
		if err := target.TakeJournalInside(ctx); err != nil {
			return err
		}
	}
	if _, _, err := Check(ctx, record, target, true); err != nil {
		return err
	}
	if record.FileSystem == records.JFS {
		return jfs.Offline{Device: target.Device, Lock: target.Lock}.SetUUID(ctx, id)
	}
	return target.SetUUID(ctx, id)
}

// CheckTools refuses a host without the tools of the file system.
func CheckTools(record records.Volume) error {
	if record.FileSystem == records.JFS {
		return jfs.CheckTools()
	}
	return nil
}

// MakeJFS makes a JFS with the volume's UUID. The tools keep held open until they have
// ended.
func MakeJFS(ctx context.Context, record records.Volume, node string, held *os.File, logBytes uint64) error {
	return cause.NoSpace(jfs.Make(ctx, node, jfs.MakeOptions{UUID: record.ID, LogBytes: logBytes, Lock: held}))
}
