package volume

import "errors"

// The causes that callers tell apart; the messages say more.
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
	// ErrCorrupt: a record or an image is damaged or missing.
	ErrCorrupt = errors.New("damaged")
	// ErrUnsupported: the pool's file system or this kernel cannot do it.
	ErrUnsupported = errors.New("not supported here")
)
