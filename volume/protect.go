package volume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
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
func (p *Pool) protect(record *Record) (changed bool, err error) {
	s := record.Persist
	if err := checkParentMounted(*s); err != nil {
		return false, err
	}
	if _, err := os.Lstat(s.Target); errors.Is(err, fs.ErrNotExist) {
		if !s.MadeTarget {
			s.MadeTarget = true
			if err := p.files.Write(*record); err != nil {
				return false, err
			}
		}
		if err := makeTarget(s.Target); err != nil {
			return false, err
		}
		changed = true
		p.reached("persistent target")
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
	if s.TargetInode, s.TargetBirthNanoseconds, err = inode(dir); err != nil {
		return changed, err
	}
	s.Protected, s.Unprotected = true, ""
	err = checkEmpty(dir)
	if err == nil {
		if err := p.files.Write(*record); err != nil {
			*s = before
			return changed, err
		}
		p.reached("protecting")
		var flagged bool
		flagged, err = setImmutable(dir, true)
		changed = changed || flagged
		p.reached("protected")
	}
	if err == nil {
		return changed, nil
	}
	if !errors.Is(err, errUnprotected) && !errors.Is(err, ErrInvalid) {
		return changed, err
	}
	s.Protected, s.Unprotected = false, err.Error()
	p.log.Warn("while the volume is not attached, others can write into its mount point", "volume", record.Name, "target", s.Target, "why", err)
	return changed, p.files.Write(*record)
}

// warnUnprotected logs an error of protect.
func (p *Pool) warnUnprotected(record Record, err error) {
	p.log.Warn("the mount point is not protected", "volume", record.Name, "target", record.Persist.Target, "why", err)
}

// unprotect clears the flag that protect set, and removes the mount point if it
// is ours. A directory that has taken its place is left alone.
func (p *Pool) unprotect(record Record) {
	s := record.Persist
	if s.Protected {
		p.clearFlag(record)
		p.reached("unprotected")
	}
	if s.MadeTarget && checkParentMounted(*s) == nil {
		p.removeTarget(record.Name, s.Target)
	}
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
