package volume

import "github.com/daybook-project/daybook/volume/internal/cause"

// The causes that callers distinguish, with errors.Is; the messages say more.
// Each error of this package is one of them, or of context.Canceled and
// context.DeadlineExceeded. Errors of the operating system, such as
// fs.ErrPermission, and of a caller's reader or writer are wrapped as well.
var (
	// ErrInvalid: a name, size or option that cannot be.
	ErrInvalid = cause.ErrInvalid
	// ErrNotFound: no volume, snapshot or pool of that name.
	ErrNotFound = cause.ErrNotFound
	// ErrExists: the name is taken.
	ErrExists = cause.ErrExists
	// ErrBusy: attached, mounted elsewhere, or another process works on it.
	ErrBusy = cause.ErrBusy
	// ErrDetached: the volume would have to be attached.
	ErrDetached = cause.ErrDetached
	// ErrNoSpace: the pool, its quota or the volume group is full.
	ErrNoSpace = cause.ErrNoSpace
	// ErrNotFrozen: the file system of an attached volume was not frozen, or
	// may not be, for as long as copying it takes.
	ErrNotFrozen = cause.ErrNotFrozen
	// ErrCorrupt: a record or an image is damaged or missing.
	ErrCorrupt = cause.ErrCorrupt
	// ErrUntrusted: a user other than root could have written a record.
	ErrUntrusted = cause.ErrUntrusted
	// ErrUnsupported: the pool's file system, this kernel or host cannot do
	// it, or a newer Daybook has written what is to be read.
	ErrUnsupported = cause.ErrUnsupported
	// ErrSystem: the operating system, a program or the caller's stream
	// failed, for none of the reasons above.
	ErrSystem = cause.ErrSystem
)
