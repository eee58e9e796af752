package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Inode distinguishes the kernel's disk, with its queue and its scheduler, from any other of its
// name and number at another time on the running host. Unlike [Disk.Identity], it stays with another
// file of a loop device and another medium in a drive: the kernel keeps the queue. It is never 0.
func (d Disk) Inode() (uint64, error) {
	// The kernel makes the directory with the disk, and numbers directories in order.
	var disk unix.Stat_t
	if err := unix.Stat(d.path("."), &disk); err != nil {
		return 0, goneIfMissing(d.Name, &os.PathError{Op: "stat", Path: d.path("."), Err: err})
	}
	return disk.Ino, nil
}

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
	disk, err := d.Inode()
	if err != nil {
		return "", err
	}
	// The kernel makes the directory of the loop attributes with the file.
	var file unix.Stat_t
	if err := unix.Stat(d.path("loop"), &file); err != nil && !errors.Is(err, unix.ENOENT) {
		return "", fmt.Errorf("disk %s: cannot read %s: %w", d.Name, d.path("loop"), err)
	}
	return fmt.Sprintf("directory %d %d", disk, file.Ino), nil
}
