// Package cause has the causes of errors that callers of the package volume
// distinguish by errors.Is. The packages that volume imports wrap them; volume exports
// them under the same names.
package cause

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/internal/jfs"
	"github.com/daybook-project/daybook/internal/versioned"
)

// The causes. The package volume documents them.
var (
	ErrInvalid     = errors.New("invalid")
	ErrNotFound    = errors.New("not found")
	ErrExists      = errors.New("exists already")
	ErrBusy        = errors.New("in use")
	ErrDetached    = errors.New("not attached")
	ErrNoSpace     = errors.New("no space in the pool")
	ErrNotFrozen   = errors.New("not frozen long enough")
	ErrCorrupt     = errors.New("damaged")
	ErrUntrusted   = errors.New("not to be trusted")
	ErrUnsupported = errors.New("not supported here")
	ErrSystem      = errors.New("the system failed")
)

// All are the causes, each with errors of other packages that have this cause.
var All = []struct {
	Cause  error
	Inside []error
}{
	{ErrInvalid, nil},
	{ErrNotFound, nil},
	{ErrExists, nil},
	{ErrBusy, []error{blockdev.ErrBusy, ext4.ErrBusy, cgroup.ErrInUse}},
	{ErrDetached, nil},
	{ErrNotFrozen, nil},
	{ErrNoSpace, []error{unix.ENOSPC, unix.EDQUOT}},
	{ErrUnsupported, []error{versioned.ErrNewer, blockdev.ErrNoDirectIO, cgroup.ErrNoHierarchy, cgroup.ErrNoWeights, exec.ErrNotFound}},
	{ErrUntrusted, nil},
	{ErrCorrupt, []error{ext4.ErrNotExt4, ext4.ErrDamaged, ext4.ErrNoJournal, jfs.ErrNotJFS, jfs.ErrDamaged}},
	{ErrSystem, nil},
	{context.Canceled, nil},
	{context.DeadlineExceeded, nil},
}

// caused is an error with a cause that its text does not name.
type caused struct {
	error
	cause error
}

func (e *caused) Unwrap() []error { return []error{e.cause, e.error} }

// Because adds a cause to an error, and does not change its text.
func Because(err, cause error) error { return &caused{err, cause} }

// Public gives an error of the package volume one of the causes.
func Public(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range All {
		if errors.Is(err, known.Cause) {
			return err
		}
	}
	for _, known := range All {
		for _, inside := range known.Inside {
			if errors.Is(err, inside) {
				return Because(err, known.Cause)
			}
		}
	}
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return Because(err, ErrBusy)
	}
	return Because(err, ErrSystem)
}

// Failed formats an error, and gives it one of the causes.
func Failed(format string, arguments ...any) error {
	return Public(fmt.Errorf(format, arguments...))
}

// Unreadable is the error of a record that is damaged or newer.
func Unreadable(what string, err error) error {
	if errors.Is(err, versioned.ErrNewer) {
		return Because(fmt.Errorf("%s was %w", what, err), ErrUnsupported)
	}
	return fmt.Errorf("%s is %w: %w", what, ErrCorrupt, err)
}

// NoSpace adds ErrNoSpace to the kernel's errors for a full file system.
func NoSpace(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// Damaged adds ErrCorrupt to the error of e2fsck or fsck.jfs.
func Damaged(err error) error {
	if errors.Is(err, ext4.ErrDamaged) || errors.Is(err, jfs.ErrDamaged) {
		return fmt.Errorf("its file system is %w: %w", ErrCorrupt, err)
	}
	return err
}
