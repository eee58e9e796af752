package disksim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/procstat"
)

// unmountFUSE unmounts everything on the mount point. If it is in use, its
// connection is aborted, so that its users get errors and do not wait for a
// dead server.
func unmountFUSE(point string) error {
	for {
		err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW)
		if err == nil {
			continue // there may be another mount below
		}
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		notAborted := abortConnections(point)
		err = unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("cannot unmount %s: %w", point, errors.Join(err, notAborted))
		}
	}
}

// endKilled makes a disk's server end that was killed while one of its threads
// waits for the disk itself, and reports whether there is such a server. The
// thread has an answer once the connection is aborted; without that, it never
// ends. No server should do so: see [open]. Those of earlier versions did.
func (h home) endKilled(name string) (bool, error) {
	record, err := h.readRecord(name)
	if err != nil {
		return false, nil // nothing says which process serves the disk
	}
	if !killed(record.ServerPID, record.ServerStart) {
		return false, nil
	}
	return true, abortConnections(h.mountPoint(name))
}

// killed reports whether the process with that number and start was killed, and is still
// there. Its first thread has ended, or is the one that cannot.
func killed(pid int, start uint64) bool {
	process, err := procstat.Read(pid)
	if err != nil || process.StartTicks != start {
		return false
	}
	killed, err := procstat.Killed(pid)
	return process.Ended() || err == nil && killed
}

// abortConnections ends the FUSE connections of the disks that are mounted on
// the mount point: their users get errors.
func abortConnections(point string) error {
	mounts, err := blockdev.Mounts()
	if err != nil {
		return err
	}
	var errs []error
	for _, number := range connectionsOf(mounts, point) {
		errs = append(errs, abortConnection(number))
	}
	err = errors.Join(errs...)
	if err == nil || !isDisk(lastOn(mounts, point)) {
		return err
	}
	// Without fusectl: this also aborts the connection if the mount is in use
	// and stays.
	err = unix.Unmount(point, unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		return nil
	}
	return err
}

// lastOn is the mount that hides the others on the mount point.
func lastOn(mounts []blockdev.Mount, point string) (last blockdev.Mount) {
	for _, mount := range mounts {
		if mount.Point == point {
			last = mount
		}
	}
	return last
}

// connectionsOf are the numbers of the connections of the disks that are mounted
// on the mount point. Other file systems may be mounted there, too.
func connectionsOf(mounts []blockdev.Mount, point string) []uint32 {
	var numbers []uint32
	for _, mount := range mounts {
		if mount.Point == point && isDisk(mount) {
			numbers = append(numbers, mount.Dev.Minor)
		}
	}
	return numbers
}

// isDisk reports whether the mount is one of a simulated disk.
func isDisk(mount blockdev.Mount) bool {
	return mount.Type == mountType && mount.Source == mountSource && mount.Dev.Major == 0
}

// abortConnection ends a FUSE connection through fusectl. It is no error if the
// connection has ended.
func abortConnection(number uint32) error {
	const connections = "/sys/fs/fuse/connections"
	file, err := os.OpenFile(filepath.Join(connections, strconv.FormatUint(uint64(number), 10), "abort"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString("1")
	return errors.Join(err, file.Close())
}
