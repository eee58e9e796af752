package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Identity distinguishes the disk from any other that has its name and number at
// another time. A loop device with another file is another disk. The text is
// only for comparison, and only on the running host.
func (d Disk) Identity() (string, error) {
	sequence, err := d.read("diskseq") // since 5.15, include/linux/blkdev.h
	if err == nil {
		return "diskseq " + sequence, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	// The kernel makes the directory with the disk, and the directory of the loop
	// attributes with its file. It numbers directories in order.
	var disk unix.Stat_t
	if err := unix.Stat(d.path("."), &disk); err != nil {
		return "", goneIfMissing(d.Name, &os.PathError{Op: "stat", Path: d.path("."), Err: err})
	}
	var file unix.Stat_t
	if err := unix.Stat(d.path("loop"), &file); err != nil && !errors.Is(err, unix.ENOENT) {
		return "", fmt.Errorf("disk %s: cannot read %s: %w", d.Name, d.path("loop"), err)
	}
	return fmt.Sprintf("directory %d %d", disk.Ino, file.Ino), nil
}
