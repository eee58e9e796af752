package ext4

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/safetext"
)

// MountOptions configure [Mount].
type MountOptions struct {
	ReadOnly bool
	// NoAtime avoids updates of access times, which are metadata writes of
	// readers.
	NoAtime bool
	// NoDev disables device nodes in it; NoSuid ignores the set-user-ID and
	// set-group-ID bits and capabilities of its programs.
	NoDev, NoSuid bool
	// JournalDevice is the node of the external journal. Without it the kernel
	// uses the device number of the last mount, which for loop devices is often
	// another device by now.
	JournalDevice string
	// Memory is the slice of a region that has the journal; nil: the journal is on a
	// disk.
	Memory *Memory
	// Data are further options of ext4 ("data=journal,commit=1").
	Data string
	// At, if not nil, is the opened directory to mount on (O_PATH suffices); the
	// path is then only for messages.
	At *os.File
}

// Types of file systems whose journal is in memory.
const (
	MemoryType    = "ext4nvj"
	MemoryJFSType = "jfsnvj" // JFS
)

// Memory is a part of a region of persistent memory, with the journal of one file system.
type Memory struct {
	// Type is that of the file system: MemoryType or MemoryJFSType.
	Type string
	// Region is the node of the memory.
	Region                 string
	OffsetBytes, SizeBytes uint64
	// AllowVolatile accepts memory that may lose its content with the power.
	AllowVolatile bool
}

func (m Memory) data() string {
	data := fmt.Sprintf("journal_path=%s,journal_offset=%d,journal_size=%d", m.Region, m.OffsetBytes, m.SizeBytes)
	if m.AllowVolatile {
		data += ",allow_volatile"
	}
	return data
}

// ErrBusy means that a file system is still in use.
var ErrBusy = errors.New("in use")

// unmountPatience is how long Unmount waits for users that are about to end:
// dying processes, writeback, scanners.
const unmountPatience = 3 * time.Second

// Mount mounts the device's ext4 on the directory, which must exist.
//
// The path of a directory may be changed before the kernel follows it;
// options.At cannot.
func Mount(device, directory string, options MountOptions) error {
	var flags uintptr
	if options.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	if options.NoAtime {
		flags |= unix.MS_NOATIME
	}
	if options.NoDev {
		flags |= unix.MS_NODEV
	}
	if options.NoSuid {
		flags |= unix.MS_NOSUID
	}
	kind, data := "ext4", options.Data
	add := func(more string) {
		if data != "" {
			data += ","
		}
		data += more
	}
	if options.JournalDevice != "" {
		add("journal_path=" + options.JournalDevice)
	}
	if options.Memory != nil {
		kind = options.Memory.Type
		add(options.Memory.data())
	}
	path := directory
	if options.At != nil {
		path = "/proc/self/fd/" + strconv.Itoa(int(options.At.Fd()))
	}
	if err := unix.Mount(device, path, kind, flags, data); err != nil {
		return fmt.Errorf("cannot mount %s on %s (%s, options %q): %w; see also the kernel log", device, directory, kind, data, err)
	}
	return nil
}

// Unmount unmounts the file system on the directory and waits a few seconds for
// its last users. It never detaches lazily: an error that wraps ErrBusy means
// that the file system is still mounted. If nothing is mounted, there is no
// error.
func Unmount(ctx context.Context, directory string) error {
	deadline := time.Now().Add(unmountPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := unix.Unmount(directory, unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return nil
		case errors.Is(err, unix.EINVAL):
			// EINVAL also means "not a mount point"; another mount may be
			// deeper.
			return unmountedAfterAll(directory, err)
		case !errors.Is(err, unix.EBUSY):
			return fmt.Errorf("cannot unmount %s: %w", directory, err)
		case time.Now().After(deadline):
			return fmt.Errorf("cannot unmount %s: %w: some process works in it (see fuser -vm %s)", directory, ErrBusy, safetext.Word(directory))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot unmount %s: %w: %w", directory, ErrBusy, ctx.Err())
		case <-time.After(pause):
		}
	}
}

func unmountedAfterAll(directory string, cause error) error {
	mounts, err := blockdev.Mounts()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		if mount.Point == directory {
			return fmt.Errorf("cannot unmount %s: %w", directory, cause)
		}
	}
	return nil
}
