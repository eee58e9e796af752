package jfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/program"
)

// ErrDamaged means that fsck.jfs found errors that it did not, or could not, correct.
var ErrDamaged = errors.New("the file system is damaged")

// The tools of jfsutils.
const (
	mkfs = "mkfs.jfs"
	fsck = "fsck.jfs"
	tune = "jfs_tune"
)

// ifMissing says where the tools are.
const ifMissing = "install jfsutils"

// CheckTools refuses a host without the tools. The error wraps exec.ErrNotFound.
func CheckTools() error {
	for _, tool := range []string{mkfs, fsck, tune} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("JFS needs the command %s: %s: %w", tool, ifMissing, exec.ErrNotFound)
		}
	}
	return nil
}

// MakeOptions configure [Make].
type MakeOptions struct {
	// UUID is that of the file system; "": mkfs.jfs makes one.
	UUID string
	// LogBytes is the length of its own journal on the disk, in whole MiB; 0 is the
	// default of mkfs.jfs.
	LogBytes uint64
	// JournalDevice is the node of a device for its journal, whose content is
	// overwritten; "": the journal is on the disk itself.
	JournalDevice string
	// Lock, if not nil, stays open in the tools.
	Lock *os.File
}

const mebibyte = 1 << 20

// Make makes a JFS on the device and overwrites its content.
func Make(ctx context.Context, device string, options MakeOptions) error {
	arguments := []string{"-q"}
	if options.LogBytes != 0 {
		arguments = append(arguments, "-s", strconv.FormatUint(options.LogBytes/mebibyte, 10))
	}
	o := Offline{Device: device, Lock: options.Lock}
	if options.JournalDevice != "" {
		if _, err := o.run(ctx, mkfs, "-q", "-J", "journal_dev", options.JournalDevice); err != nil {
			return fmt.Errorf("cannot make a journal of JFS on %s: %w", options.JournalDevice, err)
		}
		arguments = append(arguments, "-J", "device="+options.JournalDevice)
	}
	if _, err := o.run(ctx, mkfs, append(arguments, device)...); err != nil {
		return fmt.Errorf("cannot make JFS on %s: %w", device, err)
	}
	if options.UUID == "" {
		return nil
	}
	return o.SetUUID(ctx, options.UUID)
}

// Offline is an unmounted file system for the tools, each of which dies with its caller.
type Offline struct {
	// Device is its node or image file.
	Device string
	// Lock, if not nil, stays open in each tool.
	Lock *os.File
}

// SetUUID gives it another UUID.
func (o Offline) SetUUID(ctx context.Context, uuid string) error {
	if _, err := o.run(ctx, tune, "-U", uuid, o.Device); err != nil {
		return fmt.Errorf("cannot set the UUID of %s: %w", o.Device, err)
	}
	s, err := ReadSuperblock(o.Device)
	if err == nil && s.UUID.String() != uuid {
		err = fmt.Errorf("cannot set the UUID of %s: %s did not change it", o.Device, tune)
	}
	return err
}

// Check runs fsck.jfs on the whole file system. Without repair it changes nothing; with
// repair it corrects what fsck.jfs corrects without questions. The report is fsck.jfs's;
// corrected means that it corrected errors. The error wraps ErrDamaged if errors remain.
func (o Offline) Check(ctx context.Context, repair bool) (report string, corrected bool, err error) {
	report, err = o.examine(ctx)
	if !repair || !errors.Is(err, ErrDamaged) {
		return report, false, err
	}
	// Its exit status is 0 also if it corrected errors, so another look at the result
	// follows.
	more, err := o.run(ctx, fsck, "-f", "-a", o.Device)
	report += more
	if !ranToItsEnd(err) {
		return report, false, err
	}
	more, err = o.examine(ctx)
	return report + more, err == nil, err
}

// examine changes nothing but the number of fsck.jfs's own log in the superblock.
func (o Offline) examine(ctx context.Context) (report string, err error) {
	report, err = o.run(ctx, fsck, "-f", "-n", "-v", o.Device)
	if ranToItsEnd(err) && !isClean(report) {
		err = fmt.Errorf("%w: %s: %s", ErrDamaged, fsck, program.Excerpt(report))
	}
	return report, err
}

// ranToItsEnd says of the error of a tool that the tool reported what it found.
func ranToItsEnd(err error) bool {
	var exit *exec.ExitError
	return err == nil || errors.As(err, &exit) && exit.ExitCode() > 0
}

// isClean reads the report of fsck.jfs -n.
func isClean(report string) bool {
	return strings.Contains(report, "Filesystem is clean.") && !strings.Contains(report, "errors")
}

func (o Offline) run(ctx context.Context, name string, arguments ...string) (string, error) {
	c := program.Command{Path: name, Args: arguments, IfMissing: ifMissing, Environment: []string{"LC_ALL=C"}}
	if o.Lock != nil {
		c.Inherited = []*os.File{o.Lock}
	}
	return program.Run(ctx, c)
}
