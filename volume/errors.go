package volume

import "github.com/daybook-project/daybook/volume/internal/cause"

// The causes that callers distinguish by errors.Is; the messages have the details.
// Each error of this package is one of them, or of context.Canceled and
// context.DeadlineExceeded. Errors of the operating system, such as
// fs.ErrPermission, and of a caller's reader or writer are wrapped as well.
var (
	// ErrInvalid: a name, size or option is not allowed.
	ErrInvalid = cause.ErrInvalid
	// ErrNotFound: no volume, snapshot, pool or work has that name.
	ErrNotFound = cause.ErrNotFound
	// ErrExists: the name is taken.
	ErrExists = cause.ErrExists
	// ErrBusy: attached, mounted elsewhere, or another process works on it.
	ErrBusy = cause.ErrBusy
	// ErrDetached: the volume must be attached for this.
	ErrDetached = cause.ErrDetached
	// ErrNoSpace: the pool, its quota or the volume group is full.
	ErrNoSpace = cause.ErrNoSpace
	// ErrNotFrozen: the file system of an attached volume was not frozen for as
	// long as copying it takes, or the limit does not allow that.
	ErrNotFrozen = cause.ErrNotFrozen
	// ErrCorrupt: a record or an image is damaged or missing.
	ErrCorrupt = cause.ErrCorrupt
	// ErrUntrusted: a user other than root could have written a record.
	ErrUntrusted = cause.ErrUntrusted
	// ErrUnsupported: the pool's file system, this kernel or host cannot do
	// it, or a newer Daybook has written the record or stream.
	ErrUnsupported = cause.ErrUnsupported
	// ErrSystem: the operating system, a program or the caller's stream
	// failed for another reason.
	ErrSystem = cause.ErrSystem
)
