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

// Offline is an unmounted file system for the tools of e2fsprogs. A tool that
// changes it must not outlive its caller, so each is killed with it.
type Offline struct {
	// Device is its node or image file.
	Device string
	// JournalDevice is the node of an external journal; "" for none.
	JournalDevice string
	// Lock, if not nil, stays open in each tool: a flock on it is also held
	// until the tool has ended.
	Lock *os.File
	// Kept is the file with the saved superblock while a tool checks or resizes
	// the file system; "" saves none. See [Offline.PutBack].
	Kept string
}

// ErrDamaged means that e2fsck found errors that it did not, or could not,
// correct.
var ErrDamaged = errors.New("the file system is damaged")

// Check runs e2fsck on the whole file system. Without repair it changes nothing
// (and does not replay the journal); with repair it corrects everything that
// e2fsck can correct without questions. The report is e2fsck's; corrected means
// that it corrected errors. The error wraps ErrDamaged if errors remain.
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
	// e2fsck(8): 1 means corrected, 2 that the host should be restarted, 4 that
	// errors remain; from 8 on it failed.
	switch code := exit.ExitCode(); {
	case code > 0 && code&4 != 0:
		return report, code&1 != 0, fmt.Errorf("%w: e2fsck: %s", ErrDamaged, program.Excerpt(report))
	case code < 0 || code >= 8:
		return report, false, err
	}
	return report, true, nil
}

// CheckResized checks the result of resize2fs on a file system that was clean,
// and corrects it. resize2fs 1.47.0 may leave the resize inode invalid, which
// e2fsck -p does not repair.
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

// onlyResizeInode reports whether e2fsck -n found only an invalid resize inode,
// number 7.
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

// ReplayJournal writes the contents of the journal in place, and checks nothing
// else.
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

// MinimumBytes is the size to which resize2fs could shrink it; it must have
// been checked.
func (o Offline) MinimumBytes(ctx context.Context) (uint64, error) {
	s, err := ReadSuperblock(o.Device)
	if err != nil {
		return 0, err
	}
	text, err := o.run(ctx, "resize2fs", "-P", o.Device)
	if err != nil {
		return 0, fmt.Errorf("cannot determine the minimum size of %s: %w", o.Device, err)
	}
	return parseMinimum(text, s.BlockSizeBytes)
}

// parseMinimum parses "Estimated minimum size of the filesystem: 6753", in
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
	return 0, fmt.Errorf("resize2fs -P prints no minimum: %q", text)
}

// Resize makes it sizeBytes long. It must have been checked, and to grow it,
// the device must be long enough. To shrink an image file, resize2fs truncates
// it after all other changes are on disk. Overwritten data is first saved in
// the undo file; "" saves nothing.
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

// Undo restores the data of an undo file. It may be repeated after an
// interruption.
func (o Offline) Undo(ctx context.Context, undoFile string) error {
	if _, err := o.change(ctx, "e2undo", undoFile, o.Device); err != nil {
		return fmt.Errorf("cannot undo the interrupted change of %s: %w", o.Device, err)
	}
	return nil
}

// SetRootMode sets the permission bits of the root directory of an unmounted
// file system, as in chmod(2).
func (o Offline) SetRootMode(ctx context.Context, bits uint32) error {
	const directory = 0o040000
	output, err := o.run(ctx, "debugfs", "-w", "-R", fmt.Sprintf("set_inode_field <2> mode 0%o", directory|bits), o.Device)
	if err != nil {
		return fmt.Errorf("cannot set the mode of the root directory on %s: %w", o.Device, err)
	}
	// debugfs exits with 0 also if its command failed; it then prints more than
	// its version.
	if lines := strings.Split(strings.TrimSpace(output), "\n"); len(lines) > 1 {
		return fmt.Errorf("cannot set the mode of the root directory on %s: debugfs: %s", o.Device, strings.Join(lines[1:], "; "))
	}
	return nil
}

// SetUUID gives it another UUID; it must have been checked.
func (o Offline) SetUUID(ctx context.Context, uuid string) error {
	if _, err := o.run(ctx, "tune2fs", "-U", uuid, o.Device); err != nil {
		return fmt.Errorf("cannot set the UUID of %s: %w", o.Device, err)
	}
	return nil
}

// TakeJournalInside gives a file system with an external journal an internal
// one. It does not touch the other device, which belongs to the file system
// that this one is a copy of. The journal must be empty.
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
	// tune2fs would record the removal in the other device.
	for _, request := range []string{"feature ^has_journal", "set_super_value journal_uuid clear", "set_super_value journal_dev 0"} {
		if _, err := o.run(ctx, "debugfs", "-w", "-R", request, o.Device); err != nil {
			return fmt.Errorf("cannot make the journal of %s internal: %w", o.Device, err)
		}
	}
	// debugfs exits with 0 also if its command failed.
	if s, err = ReadSuperblock(o.Device); err != nil {
		return err
	}
	if s.HasJournal {
		return fmt.Errorf("cannot make the journal of %s internal: debugfs did not change it", o.Device)
	}
	if _, err := o.run(ctx, "tune2fs", "-j", o.Device); err != nil {
		return fmt.Errorf("cannot make the journal of %s internal: %w", o.Device, err)
	}
	return nil
}

// run runs a tool that dies with this process, and returns its output.
func (o Offline) run(ctx context.Context, name string, arguments ...string) (string, error) {
	return tool(ctx, o.Lock, name, arguments...)
}
