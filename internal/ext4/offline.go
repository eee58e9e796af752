package ext4

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

// Offline is an unmounted file system that e2fsprogs' tools work on. A tool
// that changes it must not outlive its caller unseen, so each is killed with
// it.
type Offline struct {
	// Device is its node or image file.
	Device string
	// JournalDevice is the node of an external journal; "" for none.
	JournalDevice string
	// Lock, if not nil, stays open in each tool: a flock of it is held
	// until the tool has ended, too.
	Lock *os.File
	// Kept is the file in which the superblock is while a tool is at work
	// that checks or resizes it; "" keeps none. See [Offline.PutBack].
	Kept string
}

// ErrDamaged says that e2fsck found errors that it did not, or could not,
// correct.
var ErrDamaged = errors.New("the file system is damaged")

// Check lets e2fsck look at all of it: without repair it changes nothing (and
// does not replay the journal), with it all that e2fsck can correct by itself.
// The report is e2fsck's; corrected says that there was something. The error
// wraps ErrDamaged if errors are left.
func (o Offline) Check(ctx context.Context, repair bool) (report string, corrected bool, err error) {
	arguments := []string{"-f", "-n"}
	if repair {
		arguments[1] = "-p"
	}
	if o.JournalDevice != "" {
		arguments = append(arguments, "-j", o.JournalDevice)
	}
	arguments = append(arguments, o.Device)
	if repair {
		report, err = o.change(ctx, "e2fsck", arguments...)
	} else {
		report, err = o.run(ctx, "e2fsck", arguments...)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return report, false, err
	}
	// e2fsck(8): 1 corrected, 2 and the host should be restarted, 4
	// errors are left; 8 and above it did not do its work.
	switch code := exit.ExitCode(); {
	case code > 0 && code&4 != 0:
		return report, code&1 != 0, fmt.Errorf("%w: e2fsck: %s", ErrDamaged, program.Excerpt(report))
	case code < 0 || code >= 8:
		return report, false, err
	}
	return report, true, nil
}

// CheckResized checks what resize2fs has made of a file system that was clean,
// and corrects it. Of resize2fs 1.47.0 is known that it may leave the inode
// invalid that has the blocks for growing, which e2fsck -p does not repair.
func (o Offline) CheckResized(ctx context.Context) error {
	_, _, err := o.Check(ctx, true)
	if !errors.Is(err, ErrDamaged) {
		return err
	}
	report, _, lookErr := o.Check(ctx, false)
	if lookErr != nil && !errors.Is(lookErr, ErrDamaged) {
		return lookErr
	}
	if !onlyResizeInode(report) {
		return err
	}
	_, err = o.change(ctx, "e2fsck", "-f", "-y", o.Device)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode()&^3 != 0) {
		return err
	}
	_, _, err = o.Check(ctx, true)
	return err
}

// onlyResizeInode says whether e2fsck -n found nothing but an invalid inode for
// growing, number 7.
func onlyResizeInode(report string) bool {
	found := false
	for line := range strings.Lines(report) {
		switch {
		case strings.HasPrefix(line, "Resize inode not valid."):
			found = true
		case strings.Contains(line, "? no") && !strings.HasPrefix(line, "Inode 7, i_blocks "):
			return false
		}
	}
	return found
}

// ReplayJournal brings what waits in the journal to its place, and looks at
// nothing else.
func (o Offline) ReplayJournal(ctx context.Context) error {
	arguments := []string{"-E", "journal_only", "-y"}
	if o.JournalDevice != "" {
		arguments = append(arguments, "-j", o.JournalDevice)
	}
	_, err := o.change(ctx, "e2fsck", append(arguments, o.Device)...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode()&^3 == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot replay the journal of %s: %w", o.Device, err)
	}
	return nil
}

// MinimumBytes is how small resize2fs could make it; it must have been checked.
func (o Offline) MinimumBytes(ctx context.Context) (uint64, error) {
	s, err := ReadSuperblock(o.Device)
	if err != nil {
		return 0, err
	}
	text, err := o.run(ctx, "resize2fs", "-P", o.Device)
	if err != nil {
		return 0, fmt.Errorf("cannot tell the least size of %s: %w", o.Device, err)
	}
	return parseMinimum(text, s.BlockSizeBytes)
}

// parseMinimum reads "Estimated minimum size of the filesystem: 6753", in
// blocks.
func parseMinimum(text string, blockSizeBytes uint32) (uint64, error) {
	for line := range strings.Lines(text) {
		_, number, found := strings.Cut(line, "minimum size of the filesystem:")
		if !found {
			continue
		}
		blocks, err := strconv.ParseUint(strings.TrimSpace(number), 10, 48)
		if err == nil {
			return blocks * uint64(blockSizeBytes), nil
		}
	}
	return 0, fmt.Errorf("resize2fs -P says no minimum: %q", text)
}

// Resize makes it sizeBytes long; it must have been checked, and a device that
// is to hold more must be that long. Of an image file that is to hold less,
// resize2fs cuts off the rest when all else is done and on disk. What is
// overwritten goes to the undo file first; "" keeps nothing.
func (o Offline) Resize(ctx context.Context, sizeBytes uint64, undoFile string) error {
	var arguments []string
	if undoFile != "" {
		arguments = append(arguments, "-z", undoFile)
	}
	arguments = append(arguments, o.Device, fmt.Sprintf("%dK", sizeBytes>>10))
	if _, err := o.change(ctx, "resize2fs", arguments...); err != nil {
		return fmt.Errorf("cannot resize the file system on %s: %w", o.Device, err)
	}
	return nil
}

// Undo restores what an undo file holds. It may be done again when it was
// interrupted.
func (o Offline) Undo(ctx context.Context, undoFile string) error {
	if _, err := o.change(ctx, "e2undo", undoFile, o.Device); err != nil {
		return fmt.Errorf("cannot undo the interrupted change of %s: %w", o.Device, err)
	}
	return nil
}

// SetRootMode gives the root directory of an unmounted file system its
// permission bits, as chmod(2) has them.
func (o Offline) SetRootMode(ctx context.Context, bits uint32) error {
	const directory = 0o040000
	output, err := o.run(ctx, "debugfs", "-w", "-R", fmt.Sprintf("set_inode_field <2> mode 0%o", directory|bits), o.Device)
	if err != nil {
		return fmt.Errorf("cannot set the mode of the root directory on %s: %w", o.Device, err)
	}
	// debugfs ends with 0 also where its command failed; it then says more
	// than its version.
	if lines := strings.Split(strings.TrimSpace(output), "\n"); len(lines) > 1 {
		return fmt.Errorf("cannot set the mode of the root directory on %s: debugfs: %s", o.Device, strings.Join(lines[1:], "; "))
	}
	return nil
}

// SetUUID gives it another identity; it must have been checked.
func (o Offline) SetUUID(ctx context.Context, uuid string) error {
	if _, err := o.run(ctx, "tune2fs", "-U", uuid, o.Device); err != nil {
		return fmt.Errorf("cannot set the UUID of %s: %w", o.Device, err)
	}
	return nil
}

// TakeJournalInside gives a file system whose journal is on another device one
// of its own. The other device is not touched: it belongs to the file system
// that this one is a copy of. Nothing may wait in it.
func (o Offline) TakeJournalInside(ctx context.Context) error {
	s, err := ReadSuperblock(o.Device)
	if err != nil {
		return err
	}
	if !s.External() {
		return nil
	}
	if s.NeedsRecovery {
		return fmt.Errorf("%s has a journal on another device, which must be replayed first", o.Device)
	}
	// tune2fs would enter the leaving into the other device.
	for _, request := range []string{"feature ^has_journal", "set_super_value journal_uuid clear", "set_super_value journal_dev 0"} {
		if _, err := o.run(ctx, "debugfs", "-w", "-R", request, o.Device); err != nil {
			return fmt.Errorf("cannot take the journal of %s inside: %w", o.Device, err)
		}
	}
	// debugfs ends with 0 also where its command failed.
	if s, err = ReadSuperblock(o.Device); err != nil {
		return err
	}
	if s.HasJournal {
		return fmt.Errorf("cannot take the journal of %s inside: debugfs left it as it was", o.Device)
	}
	if _, err := o.run(ctx, "tune2fs", "-j", o.Device); err != nil {
		return fmt.Errorf("cannot take the journal of %s inside: %w", o.Device, err)
	}
	return nil
}

// run runs a tool that dies with us, and gives what it printed.
func (o Offline) run(ctx context.Context, name string, arguments ...string) (string, error) {
	return tool(ctx, o.Lock, name, arguments...)
}
