package blockdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrBusy means that a loop device or disk is still in use.
var ErrBusy = errors.New("in use")

// Loop is a loop device with the file that it was attached to.
type Loop struct {
	Disk
	// File is the backing file's absolute path.
	File string
	// inode and fileSystem show whether the number now belongs to another file;
	// 0 if not known.
	inode, fileSystem uint64
}

// Path returns the node of the loop device, such as "/dev/loop0".
func (l Loop) Path() string { return l.Node() }

// BackingFile returns the current file of a loop device; "" if it has none.
func (d Disk) BackingFile() (string, error) {
	text, err := d.read("loop/backing_file")
	if errors.Is(err, ErrGone) {
		// Without a file, the attribute is missing or empty, depending on the
		// kernel.
		if _, statErr := os.Stat(d.path("dev")); statErr == nil {
			return "", nil
		}
	}
	return text, err
}

// DirectIO reports whether the loop device bypasses the page cache of its
// backing file, according to /sys/block/loopN/loop/dio.
func (d Disk) DirectIO() (bool, error) {
	text, err := d.read("loop/dio")
	return text == "1", err
}

// LoopStatus is the result of LOOP_GET_STATUS64.
type LoopStatus struct {
	// Label is the label from [AttachOptions].
	Label string
	// FileSystem and Inode identify the backing file, as in stat(2).
	FileSystem, Inode uint64
}

// Status queries the device; the error wraps ErrGone if it has no file any
// more.
func (l Loop) Status() (LoopStatus, error) {
	fd, err := unix.Open(l.Node(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return LoopStatus{}, goneIfMissing(l.Name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	info, err := unix.IoctlLoopGetStatus64(fd)
	if err != nil {
		return LoopStatus{}, goneIfMissing(l.Name, err)
	}
	return LoopStatus{Label: unix.ByteSliceToString(info.File_name[:]), FileSystem: info.Device, Inode: info.Inode}, nil
}

// Loops lists the loop devices that have a backing file.
func Loops() ([]Loop, error) { return Host.Loops() }

// Loops is [Loops] in this tree.
func (t Tree) Loops() ([]Loop, error) {
	dirs, err := filepath.Glob(filepath.Join(t.Sys, "block", "loop*"))
	if err != nil {
		return nil, err
	}
	var loops []Loop
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if _, err := strconv.Atoi(strings.TrimPrefix(name, "loop")); err != nil {
			continue
		}
		disk, err := t.wholeDisk(dir)
		if err != nil {
			continue // removed since the listing
		}
		if file, err := disk.BackingFile(); err == nil && file != "" {
			loops = append(loops, Loop{Disk: disk, File: file})
		}
	}
	return loops, nil
}

// Detach detaches the file from the loop device. It does nothing if the device
// has no file, or another one. It fails with an error that wraps ErrBusy while
// a file system, swap or device mapper uses the device, in any mount namespace;
// then nothing is changed.
func (l Loop) Detach(ctx context.Context) error {
	// O_EXCL fails if the device is in use.
	fd, err := unix.Open(l.Node(), unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("cannot detach %s: %w%s", l.Node(), ErrBusy, l.users())
	}
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot detach %s: %w", l.Node(), err)
	}
	ours, err := l.clear(fd)
	_ = unix.Close(fd)
	if err != nil || !ours {
		return err
	}
	return l.awaitDetached(ctx)
}

// CheckUnused returns an error that wraps ErrBusy while a file system, swap, md
// or the device mapper uses the disk or partition of a node, in any mount
// namespace.
func CheckUnused(node string) error {
	fd, err := unix.Open(node, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%s is %w", node, ErrBusy)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", node, err)
	}
	return unix.Close(fd)
}

// CheckUnused is [CheckUnused] of the disk; its error names the user of the
// disk.
func (d Disk) CheckUnused() error {
	err := CheckUnused(d.Node())
	switch {
	case errors.Is(err, ErrBusy):
		return fmt.Errorf("%w%s", err, d.users())
	case err != nil:
		return goneIfMissing(d.Name, err)
	}
	return nil
}

// DetachLazily makes the kernel detach the file when the last user of the
// device is gone. It is for devices with a dead backing, where waiting is
// useless; otherwise use [Loop.Detach].
func (l Loop) DetachLazily() error {
	fd, err := unix.Open(l.Node(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot detach %s: %w", l.Node(), err)
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = l.clear(fd)
	return err
}

// clear calls LOOP_CLR_FD if the device still has our file.
func (l Loop) clear(fd int) (ours bool, err error) {
	info, err := unix.IoctlLoopGetStatus64(fd)
	if errors.Is(err, unix.ENXIO) {
		return false, nil
	}
	switch {
	case err == nil && l.inode != 0:
		ours = info.Inode == l.inode && info.Device == l.fileSystem
	default:
		// LOOP_GET_STATUS64 reads the attributes of the file, which blocks on a
		// dead FUSE server; sysfs only prints the path.
		file, fileErr := l.BackingFile()
		if fileErr != nil {
			return false, fileErr
		}
		ours = file == l.File
	}
	if !ours {
		return false, nil
	}
	if err := l.forgetPartitions(); err != nil {
		return true, err
	}
	err = unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0)
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return true, fmt.Errorf("cannot detach %s: %w", l.Node(), err)
	}
	return true, nil
}

// forgetPartitions removes the partitions of the device, except those in use. The
// kernel keeps them when the file is detached, unless it was asked to look for
// partitions (LO_FLAGS_PARTSCAN; drivers/block/loop.c, __loop_clr_fd), and so the
// next file, perhaps another program's, would have them.
func (l Loop) forgetPartitions() error {
	numbers, err := partitionNumbers(l.Disk)
	if err != nil {
		return err
	}
	for _, number := range numbers {
		if err := removePartition(l.Disk, number); err != nil && !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	return nil
}

// awaitDetached waits, because LOOP_CLR_FD takes effect only when the last
// opener (udev, blkid) has closed the device.
func (l Loop) awaitDetached(caller context.Context) error {
	ctx, cancel := context.WithTimeout(caller, detachPatience)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		file, err := l.BackingFile()
		if errors.Is(err, ErrGone) || err == nil && file != l.File {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			err := fmt.Errorf("%s is still attached to %s: %w%s", l.Node(), l.File, ErrBusy, l.users())
			return errors.Join(err, caller.Err())
		case <-time.After(pause):
		}
	}
}

const detachPatience = 5 * time.Second

// users lists, for an error message, the users of the disk.
func (d Disk) users() string {
	var users []string
	if mounts, err := MountsOf(d.Dev); err == nil {
		for _, mount := range mounts {
			users = append(users, "mounted on "+mount.Point)
		}
	}
	if holders, err := os.ReadDir(d.path("holders")); err == nil {
		for _, holder := range holders {
			users = append(users, "held by "+holder.Name())
		}
	}
	if len(users) == 0 {
		users = d.mountsElsewhere()
	}
	if len(users) == 0 {
		return ""
	}
	return ": " + strings.Join(users, ", ")
}

// mountsElsewhere says which process has the disk mounted in another mount namespace, such as
// a container that was started while it was mounted here. Only the first one is looked for.
func (d Disk) mountsElsewhere() []string {
	processes, err := filepath.Glob(filepath.Join(Host.Proc, "[0-9]*"))
	if err != nil {
		return nil
	}
	for _, process := range processes {
		mounts, err := Host.mountsOf(filepath.Base(process))
		if err != nil {
			continue // it has ended, or /proc hides it
		}
		for _, mount := range mounts {
			if mount.Dev == d.Dev {
				return []string{fmt.Sprintf("process %s has it mounted on %s, in another mount namespace", filepath.Base(process), mount.Point)}
			}
		}
	}
	return nil
}
