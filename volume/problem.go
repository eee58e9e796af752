package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/volume/internal/store"
)

const freezeAbandonedProblem = "its file system is frozen, and the process that froze it has ended; writers wait: run daybook volume repair"

// problem says what is damaged, missing or unfinished of a volume; "" if nothing is known.
// nodeErr is the error of the file or device with its blocks, unfinished the result of
// [Pool.unfinished].
func problem(record Record, nodeErr error, unfinished string) string {
	damaged := nodeErr != nil && !isInactive(record, nodeErr)
	if damaged && (record.Attachment == nil || unfinished == "") {
		return fmt.Sprintf("image or device: %v", nodeErr)
	}
	return unfinished
}

// fileSystemProblem says that the file system of a volume that is attached to be written had
// errors, or is read-only; "" if neither. After an error ext4 writes nothing more, or fails
// later.
func fileSystemProblem(record Record, flags int64, ext4Errors uint64) string {
	const repair = "detach the volume, run daybook volume check --repair, and attach it again"
	switch {
	case record.Attachment == nil || record.Attachment.ReadOnly:
		return ""
	case ext4Errors > 0:
		return fmt.Sprintf("its file system has recorded errors (%d), after which it may be read-only: %s", ext4Errors, repair)
	case flags&unix.ST_RDONLY != 0:
		return "its file system is read-only: if it was not remounted so by hand, " + repair
	}
	return ""
}

// unfinished says what needs a repair; "" if nothing does. An operation in progress is
// unfinished, too.
func (p *Pool) unfinished(record Record, mounted bool) string {
	const repair = "daybook volume repair"
	a := record.Attachment
	switch {
	case a != nil && a.State != Attached:
		return fmt.Sprintf("%s is unfinished: %s", a.State, repair)
	case a != nil && !mounted:
		return "it was attached, and is no longer: " + repair
	case record.Resize != 0:
		return "a resize is unfinished: " + repair
	}
	if _, err := os.Lstat(p.files.KeptSuperblock(record.Name)); !errors.Is(err, fs.ErrNotExist) {
		return "a check or resize is unfinished: " + repair
	}
	return persistenceProblem(record)
}

// inProgress says whether a process works on a volume. It takes the lock for a moment, if
// the lock is free.
func (p *Pool) inProgress(name string) bool {
	l, err := store.LockDirectory(p.files.VolumeDir(name))
	if err == nil {
		l.Release()
	}
	return errors.Is(err, ErrBusy)
}

// isInactive says that a detached volume's logical volume has no device node. That is no
// problem: the next command on the volume activates it.
func isInactive(record Record, err error) bool {
	return record.LVM != nil && record.Attachment == nil && errors.Is(err, fs.ErrNotExist)
}
