package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/volume/operation"
)

// While a persistent volume is not attached, its mount point is an empty
// directory with the immutable flag (chattr +i): nobody, root included, can
// create anything in it. So a container engine that starts before the volume is
// attached, or after that failed, cannot fill the directory instead of the
// volume. The kernel still mounts on such a directory.

// immutableFlag is FS_IMMUTABLE_FL of include/uapi/linux/fs.h.
const immutableFlag = 0x10

// errUnprotected wraps the reason why a mount point cannot have the flag.
var errUnprotected = errors.New("the mount point cannot be protected")

// checkEmpty refuses a directory that has entries. The error wraps ErrInvalid.
func checkEmpty(dir *os.File) error {
	names, err := dir.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w mount point %s: it is not empty: it holds %q; move that away", ErrInvalid, dir.Name(), names[0])
}

// setImmutable sets or clears the flag; changed is false if it already was so.
// The error wraps errUnprotected where the file system or the kernel refuses.
func setImmutable(dir *os.File, on bool) (changed bool, err error) {
	if on {
		if err := checkLasting(dir); err != nil {
			return false, err
		}
	}
	flags, err := unix.IoctlGetUint32(int(dir.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return false, fmt.Errorf("%w: its file system has no immutable flag: %w", errUnprotected, err)
	}
	if flags&immutableFlag != 0 == on {
		return false, nil
	}
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), unix.FS_IOC_SETFLAGS, int(int32(flags^immutableFlag))); err != nil {
		return false, fmt.Errorf("%w: cannot change the immutable flag of %s (needs CAP_LINUX_IMMUTABLE): %w", errUnprotected, dir.Name(), err)
	}
	return true, nil
}

// checkLasting refuses a directory in memory, which the next start does not have.
func checkLasting(dir *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return err
	}
	switch int64(st.Type) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return fmt.Errorf("%w: it is in memory, and missing after a start of the host until the volume is attached", errUnprotected)
	}
	return nil
}

// isImmutable says whether a directory has the flag.
func isImmutable(dir *os.File) bool {
	flags, err := unix.IoctlGetUint32(int(dir.Fd()), unix.FS_IOC_GETFLAGS)
	return err == nil && flags&immutableFlag != 0
}

// inode is the number of a directory and the time of its creation, in nanoseconds
// since 1970; 0 where the file system does not keep that. Both together are another
// directory's on no file system, also where the number of a disk means another disk
// after the next start.
func inode(file *os.File) (number uint64, birth int64, err error) {
	var st unix.Statx_t
	err = unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st)
	if st.Mask&unix.STATX_BTIME != 0 {
		birth = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return st.Ino, birth, err
}

// protect creates a persistent volume's mount point if it is missing, and sets
// its immutable flag. Each step is recorded first. A mount point that cannot have
// the flag is no error: the record and the log say why.
func (p *Pool) protect(ctx context.Context, record *Record) (changed bool, err error) {
	s := record.Persist
	if err := checkParentMounted(*s); err != nil {
		return false, err
	}
	if _, err := os.Lstat(s.Target); errors.Is(err, fs.ErrNotExist) {
		err := p.run(record).Do(ctx, operation.Step{
			Name: "persistent target",
			Intent: func() (bool, error) {
				was := s.MadeTarget
				s.MadeTarget = true
				return !was, nil
			},
			Do: func(context.Context) error { return makeTarget(s.Target) },
		})
		if err != nil {
			return false, err
		}
		changed = true
	}
	dir, err := openBelow(s.Target)
	if err != nil {
		return changed, fmt.Errorf("mount point: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if isImmutable(dir) {
		return changed, nil // ours from before, or its owner set it
	}
	before := *s
	if err := checkEmpty(dir); err != nil {
		return changed, p.leaveUnprotected(record, err)
	}
	saved := false
	err = p.run(record).Do(ctx, operation.Step{
		Name: "protected",
		Intent: func() (_ bool, err error) {
			s.TargetInode, s.TargetBirthNanoseconds, err = inode(dir)
			s.Protected, s.Unprotected = true, ""
			return true, err
		},
		Do: func(context.Context) error {
			saved = true
			flagged, err := setImmutable(dir, true)
			changed = changed || flagged
			return err
		},
	})
	if !saved {
		*s = before
		return changed, err
	}
	if errors.Is(err, errUnprotected) {
		err = p.leaveUnprotected(record, err)
	}
	return changed, err
}

// leaveUnprotected records and logs why a mount point cannot be protected.
func (p *Pool) leaveUnprotected(record *Record, why error) error {
	if !errors.Is(why, errUnprotected) && !errors.Is(why, ErrInvalid) {
		return why
	}
	s := record.Persist
	s.Protected, s.Unprotected = false, why.Error()
	p.log.Warn("while the volume is not attached, others can write into its mount point", "volume", record.Name, "target", s.Target, "why", why)
	return p.files.Write(*record)
}

// warnUnprotected logs an error of protect.
func (p *Pool) warnUnprotected(record Record, err error) {
	p.log.Warn("the mount point is not protected", "volume", record.Name, "target", record.Persist.Target, "why", err)
}

// unprotect clears the flag that protect set, and removes the mount point if it
// is ours. A directory that has taken its place is left alone.
func (p *Pool) unprotect(ctx context.Context, record Record) error {
	s := record.Persist
	return p.steps().Undo(ctx,
		operation.Step{Name: "persistent target", Undo: func(context.Context) error {
			if s.MadeTarget && checkParentMounted(*s) == nil {
				p.removeTarget(record.Name, s.Target)
			}
			return nil
		}},
		operation.Step{Name: "protected", Undo: func(context.Context) error {
			if s.Protected {
				p.clearFlag(record)
			}
			return nil
		}},
	)
}

// clearFlag clears the flag that protect set. A flag that stays is a warning and no
// error: the volume's data must remain reachable.
func (p *Pool) clearFlag(record Record) {
	if err := clearProtection(record.Persist); err != nil {
		p.log.Warn("the mount point stays immutable: clear its flag with chattr -i "+record.Persist.Target,
			"volume", record.Name, "target", record.Persist.Target, "why", err)
	}
}

func clearProtection(s *Persistence) error {
	if err := checkParentMounted(*s); err != nil {
		return err
	}
	dir, err := openBelow(s.Target)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // gone, or something else
	}
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	number, birth, err := inode(dir)
	if err != nil || number != s.TargetInode || s.TargetBirthNanoseconds != 0 && birth != s.TargetBirthNanoseconds {
		return err
	}
	_, err = setImmutable(dir, false)
	return err
}
