package volume

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
	"github.com/daybook-project/daybook/internal/versioned"
)

// The causes that callers tell apart, with errors.Is; the messages say more.
// Each error of this package is one of them, or of context.Canceled and
// context.DeadlineExceeded. Errors of the operating system, such as
// fs.ErrPermission, and of a caller's reader or writer are wrapped as well.
var (
	// ErrInvalid: a name, size or option that cannot be.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound: no volume, snapshot or pool of that name.
	ErrNotFound = errors.New("not found")
	// ErrExists: the name is taken.
	ErrExists = errors.New("exists already")
	// ErrBusy: attached, mounted elsewhere, or in the hands of another
	// process.
	ErrBusy = errors.New("in use")
	// ErrDetached: the volume would have to be attached.
	ErrDetached = errors.New("not attached")
	// ErrNoSpace: the pool, or its quota, is full.
	ErrNoSpace = errors.New("no space in the pool")
	// ErrNotFrozen: an attached volume's file system did not stand still, or
	// may not, for as long as copying it takes.
	ErrNotFrozen = errors.New("not frozen long enough")
	// ErrCorrupt: a record or an image is damaged or missing.
	ErrCorrupt = errors.New("damaged")
	// ErrUntrusted: a user other than root could have written a record.
	ErrUntrusted = errors.New("not to be trusted")
	// ErrUnsupported: the pool's file system, this kernel or host cannot do
	// it, or a newer Daybook has written what is to be read.
	ErrUnsupported = errors.New("not supported here")
	// ErrSystem: the operating system, a program or the caller's stream
	// failed, for none of the reasons above.
	ErrSystem = errors.New("the system failed")
)

// causes are all of them, with what may not leave the package alone.
var causes = []struct {
	cause  error
	inside []error
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
	{ErrCorrupt, []error{ext4.ErrNotExt4, ext4.ErrDamaged, ext4.ErrNoJournal}},
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

// public gives an error that leaves the package a cause that callers know.
func public(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range causes {
		if errors.Is(err, known.cause) {
			return err
		}
	}
	for _, known := range causes {
		for _, inside := range known.inside {
			if errors.Is(err, inside) {
				return &caused{err, known.cause}
			}
		}
	}
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return &caused{err, ErrBusy}
	}
	return &caused{err, ErrSystem}
}

// failed is an error that leaves the package, with its text.
func failed(format string, arguments ...any) error {
	return public(fmt.Errorf(format, arguments...))
}

// unreadable says what is wrong with a record: it is damaged, or newer.
func unreadable(what string, err error) error {
	if errors.Is(err, versioned.ErrNewer) {
		return &caused{fmt.Errorf("%s was %w", what, err), ErrUnsupported}
	}
	return fmt.Errorf("%s is %w: %w", what, ErrCorrupt, err)
}
