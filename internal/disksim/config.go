package disksim

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
)

// Errors that callers distinguish.
var (
	// ErrUnsupported means that the host lacks root, FUSE, loop devices or the
	// requested scheduler.
	ErrUnsupported = errors.New("not possible on this host")
	// ErrExists means that a disk of that name exists.
	ErrExists = errors.New("there is a disk of this name")
	// ErrNotFound means that no disk has that name.
	ErrNotFound = errors.New("there is no disk of this name")
	// ErrBusy means that the disk is in use.
	ErrBusy = errors.New("the disk is in use")
	// ErrInvalid means that a name, size or parameter is wrong.
	ErrInvalid = errors.New("invalid")
)

const (
	// DefaultStateDir is the default directory of the disks' records.
	DefaultStateDir = "/run/daybook/disks"
	// DefaultSizeBytes is the default size of a disk; it uses space only as it
	// is written.
	DefaultSizeBytes = 8 << 30
	// MinSizeBytes and MaxSizeBytes limit the size of a disk.
	MinSizeBytes = 1 << 20
	MaxSizeBytes = 1 << 46
	// sizeUnit divides each size.
	sizeUnit = 4096
)

// KeepScheduler as Config.Scheduler keeps the kernel's choice.
const KeepScheduler = "keep"

// Config describes the disk to create.
type Config struct {
	// Name is 1 to 32 of a-z, 0-9 and "-", not "-" first.
	Name string
	// SizeBytes is a multiple of 4096, 1 MiB to 64 TiB; 0 is 8 GiB.
	SizeBytes uint64
	// Parameters of the model, see [Preset]. The zero value is a disk without
	// service times.
	Parameters Parameters
	// Backing is the path of a sparse file on the host with the data. A missing
	// file is made; an existing one must have SizeBytes, and belong to no other
	// disk. Delete keeps it. "" keeps the data in memory.
	Backing string
	// Scheduler is set on the device as a new instance: "" is BFQ if the kernel
	// has it, KeepScheduler keeps the current one, any other must be available.
	// The former scheduler is restored when the disk is deleted, without
	// changed tunables.
	Scheduler string
	// OwnerBound ends the disk with the process that created it, however that
	// ends: its mounts are unmounted lazily. Otherwise the disk stays until
	// [Delete].
	OwnerBound bool
	// StateDir is the directory of the disk's record and mount; "" is
	// DefaultStateDir.
	StateDir string
	// Executable is the program that serves the disk, which must call
	// [ServeIfAsked]; "" is the running program.
	Executable string
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// CheckName returns an error if a disk's name is invalid.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("disk name %q is %w: want 1 to 32 of a-z, 0-9 and -, not - first", name, ErrInvalid)
	}
	return nil
}

// CheckSize returns an error if a disk's size is invalid.
func CheckSize(sizeBytes uint64) error {
	if sizeBytes < MinSizeBytes || sizeBytes > MaxSizeBytes {
		return fmt.Errorf("disk size %d bytes is %w: want 1 MiB to 64 TiB", sizeBytes, ErrInvalid)
	}
	if sizeBytes%sizeUnit != 0 {
		return fmt.Errorf("disk size %d bytes is %w: want a multiple of %d", sizeBytes, ErrInvalid, sizeUnit)
	}
	return nil
}

// complete checks the configuration and fills in the defaults.
func (c Config) complete() (Config, error) {
	if err := CheckName(c.Name); err != nil {
		return c, err
	}
	if c.SizeBytes == 0 {
		c.SizeBytes = DefaultSizeBytes
	}
	if err := CheckSize(c.SizeBytes); err != nil {
		return c, err
	}
	if err := c.Parameters.Check(); err != nil {
		return c, fmt.Errorf("disk model is %w: %w", ErrInvalid, err)
	}
	var err error
	if c.Backing != "" {
		if c.Backing, err = filepath.Abs(c.Backing); err != nil {
			return c, err
		}
	}
	if c.Executable == "" {
		// The running program, even if its file was replaced meanwhile.
		c.Executable = "/proc/self/exe"
	}
	return c, nil
}
