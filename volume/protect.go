package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/volume/internal/mountpoint"
	"github.com/daybook-project/daybook/volume/operation"
)

// While a persistent volume is not attached, its mount point is an empty
// directory with the immutable flag (chattr +i): no process, even of root, can
// create anything in it. So a container engine that starts before the volume is
// attached, or after that failed, cannot fill the directory instead of the
// volume. The kernel still mounts on such a directory.

// protect creates a persistent volume's mount point if it is missing, and sets
// its immutable flag. Each step is recorded first. If the mount point cannot have
// the flag, that is no error: the reason is in the record and the log.
func (v *held) protect(ctx context.Context) (changed bool, err error) {
	s := v.record.Persist
	if err := checkParentMounted(*s); err != nil {
		return false, err
	}
	if _, err := os.Lstat(s.Target); errors.Is(err, fs.ErrNotExist) {
		err := v.run().Do(ctx, operation.Step{
			Name: "persistent target",
			Intent: func() (bool, error) {
				was := s.MadeTarget
				s.MadeTarget = true
				return !was, nil
			},
			Do: func(context.Context) error { return mountpoint.Create(s.Target) },
		})
		if err != nil {
			return false, err
		}
		changed = true
	}
	dir, err := mountpoint.OpenBelow(s.Target)
	if err != nil {
		return changed, fmt.Errorf("mount point: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if mountpoint.IsImmutable(dir) {
		return changed, nil // set by us before, or by its owner
	}
	before := *s
	if err := mountpoint.CheckEmpty(dir); err != nil {
		return changed, v.leaveUnprotected(err)
	}
	saved := false
	err = v.run().Do(ctx, operation.Step{
		Name: "protected",
		Intent: func() (_ bool, err error) {
			s.TargetInode, s.TargetBirthNanoseconds, err = mountpoint.Inode(dir)
			s.Protected, s.Unprotected = true, ""
			return true, err
		},
		Do: func(context.Context) error {
			saved = true
			flagged, err := mountpoint.SetImmutable(dir, true)
			changed = changed || flagged
			return err
		},
	})
	if !saved {
		*s = before
		return changed, err
	}
	if errors.Is(err, mountpoint.ErrUnprotected) {
		err = v.leaveUnprotected(err)
	}
	return changed, err
}

// leaveUnprotected records and logs why a mount point cannot be protected.
func (v *held) leaveUnprotected(why error) error {
	if !errors.Is(why, mountpoint.ErrUnprotected) && !errors.Is(why, ErrInvalid) {
		return why
	}
	s := v.record.Persist
	s.Protected, s.Unprotected = false, why.Error()
	v.pool.log.Warn("while the volume is not attached, other processes can write into its mount point", "volume", v.record.Name, "target", s.Target, "why", why)
	return v.write()
}

// warnUnprotected logs an error of protect.
func (v *held) warnUnprotected(err error) {
	v.pool.log.Warn("the mount point is not protected", "volume", v.record.Name, "target", v.record.Persist.Target, "why", err)
}

// unprotect clears the flag that protect set, and removes the mount point if it
// is ours. Another directory in its place is not changed.
func (v *held) unprotect(ctx context.Context) error {
	s := v.record.Persist
	return v.pool.steps().Undo(ctx,
		operation.Step{Name: "persistent target", Undo: func(context.Context) error {
			if s.MadeTarget && checkParentMounted(*s) == nil {
				v.removeTarget(s.Target)
			}
			return nil
		}},
		operation.Step{Name: "protected", Undo: func(context.Context) error {
			if s.Protected {
				v.clearFlag()
			}
			return nil
		}},
	)
}

// clearFlag clears the flag that protect set. If that fails, it logs a warning and
// returns no error: the volume's data must remain accessible.
func (v *held) clearFlag() {
	s := v.record.Persist
	if err := clearProtection(s); err != nil {
		v.pool.log.Warn("the mount point stays immutable: clear its flag with chattr -i "+safetext.Word(s.Target),
			"volume", v.record.Name, "target", s.Target, "why", err)
	}
}

func clearProtection(s *Persistence) error {
	if err := checkParentMounted(*s); err != nil {
		return err
	}
	dir, err := mountpoint.OpenBelow(s.Target)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // removed, or replaced
	}
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	number, birth, err := mountpoint.Inode(dir)
	if err != nil || number != s.TargetInode || s.TargetBirthNanoseconds != 0 && birth != s.TargetBirthNanoseconds {
		return err
	}
	_, err = mountpoint.SetImmutable(dir, false)
	return err
}

// removeTarget removes a mount point that is ours.
func (v *held) removeTarget(target string) {
	err := mountpoint.Remove(target)
	// It may have entries now, which are not ours.
	if err != nil {
		v.pool.log.Warn("the mount point stays", "volume", v.record.Name, "target", target, "why", err)
	}
}

// The mount point of a persistent volume may be on a disk that is not mounted, such as one
// with nofail in /etc/fstab. The directory of that disk's mount point is then on
// another file system, where Daybook must not create or protect anything.

// errParentUnmounted is wrapped by the refusal of a mount point without its file system.
var errParentUnmounted = errors.New("is not mounted")

// checkParentMounted refuses while nothing is mounted where the file system of the
// mount point's parent was when the volume became persistent.
func checkParentMounted(s Persistence) error {
	if s.ParentMount == "" || s.ParentMount == "/" {
		return nil // an older record, or the file system that is always there
	}
	mounted, err := mountpoint.Mounted(s.ParentMount)
	if err != nil || mounted != "" {
		return err
	}
	parent := filepath.Dir(s.Target)
	return fmt.Errorf("%w mount point %s: the file system of %s %w: mount it on %s (findmnt --fstab %s)",
		ErrInvalid, s.Target, parent, errParentUnmounted, s.ParentMount, safetext.Word(s.ParentMount))
}
