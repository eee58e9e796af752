package disksim

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
)

// Errors that callers tell apart.
var (
	// ErrUnsupported says that the host lacks root, FUSE, loop devices or
	// the scheduler asked for.
	ErrUnsupported = errors.New("not possible on this host")
	// ErrExists says that a disk of the name exists.
	ErrExists = errors.New("there is a disk of this name")
	// ErrNotFound says that no disk has the name.
	ErrNotFound = errors.New("there is no disk of this name")
	// ErrBusy says that something uses the disk.
	ErrBusy = errors.New("the disk is in use")
	// ErrInvalid says that a name, size or parameter is wrong.
	ErrInvalid = errors.New("invalid")
)

const (
	// DefaultStateDir is where disks are recorded.
	DefaultStateDir = "/run/daybook/disks"
	// DefaultSizeBytes is a disk's size if none is given; it takes room
	// only as it is written.
	DefaultSizeBytes = 8 << 30
	// MinSizeBytes and MaxSizeBytes bound a disk's size.
	MinSizeBytes = 1 << 20
	MaxSizeBytes = 1 << 46
	// sizeUnit is what a size must be a multiple of.
	sizeUnit = 4096
)

// KeepScheduler as Config.Scheduler leaves the kernel's choice.
const KeepScheduler = "keep"

// Config says what disk to create.
type Config struct {
	// Name is 1 to 32 of a-z, 0-9 and "-", not "-" first.
	Name string
	// SizeBytes is a multiple of 4096, 1 MiB to 64 TiB; 0 is 8 GiB.
	SizeBytes uint64
	// Parameters of the model, see [Preset]. The zero value is a disk that
	// takes no time.
	Parameters Parameters
	// Backing is the path of a sparse file on the host that holds the
	// data. It is made if missing, must be of SizeBytes if not, and is
	// kept when the disk is deleted. "" holds the data in memory.
	Backing string
	// Scheduler is set on the device, a new one: "" is BFQ if the kernel has
	// it, KeepScheduler leaves what is there, any other must be available.
	// What was there is restored when the disk is deleted, without tunables
	// that were set.
	Scheduler string
	// OwnerBound ends the disk with the process that created it, however
	// that ends: what is mounted from it is unmounted lazily. Otherwise
	// the disk stays until [Delete].
	OwnerBound bool
	// StateDir is where the disk is recorded and mounted; "" is
	// DefaultStateDir.
	StateDir string
	// Executable is the program that serves the disk, which must call
	// [ServeIfAsked]; "" is the running program.
	Executable string
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// CheckName says what is wrong with a disk's name.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("disk name %q is %w: want 1 to 32 of a-z, 0-9 and -, not - first", name, ErrInvalid)
	}
	return nil
}

// CheckSize says what is wrong with a disk's size.
func CheckSize(sizeBytes uint64) error {
	if sizeBytes < MinSizeBytes || sizeBytes > MaxSizeBytes {
		return fmt.Errorf("disk size %d bytes is %w: want 1 MiB to 64 TiB", sizeBytes, ErrInvalid)
	}
	if sizeBytes%sizeUnit != 0 {
		return fmt.Errorf("disk size %d bytes is %w: want a multiple of %d", sizeBytes, ErrInvalid, sizeUnit)
	}
	return nil
}

// complete checks the configuration and fills in what was left out.
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
