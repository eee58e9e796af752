package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Dev is the number of a block device.
type Dev struct{ Major, Minor uint32 }

// String returns "major:minor", as in /sys/block/NAME/dev and io.stat.
func (d Dev) String() string { return fmt.Sprintf("%d:%d", d.Major, d.Minor) }

// DevOf converts st_dev or st_rdev of stat(2).
func DevOf(number uint64) Dev { return Dev{Major: unix.Major(number), Minor: unix.Minor(number)} }

// kernelMinorBits are the bits of a minor number in the kernel's dev_t
// (MINORBITS, include/linux/kdev_t.h).
const kernelMinorBits = 20

// Kernel is the number as the kernel and its tracepoints use it: 12 bits of major,
// 20 of minor.
func (d Dev) Kernel() uint32 { return d.Major<<kernelMinorBits | d.Minor }

// DevOfKernel is the inverse of [Dev.Kernel].
func DevOfKernel(number uint32) Dev {
	return Dev{Major: number >> kernelMinorBits, Minor: number & (1<<kernelMinorBits - 1)}
}

// DeviceName returns the kernel's name of the device or partition with that number, as
// in sysfs and jbd2: with "!" where the path of the node has a further "/". The error
// wraps ErrGone if there is none.
func DeviceName(dev Dev) (string, error) { return Host.DeviceName(dev) }

// DeviceName is [DeviceName] in this tree.
func (t Tree) DeviceName(dev Dev) (string, error) {
	dir, err := t.directoryOf(dev)
	return filepath.Base(dir), err
}

// directoryOf resolves the directory in sysfs of a device or partition.
func (t Tree) directoryOf(dev Dev) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(t.Sys, "dev/block", dev.String()))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no block device has the number %s: %w", dev, ErrGone)
	}
	if err != nil {
		return "", fmt.Errorf("cannot resolve device %s: %w", dev, err)
	}
	return dir, nil
}

// NodeOf returns the path below /dev of the node of a device with that name
// ([DeviceName]).
func NodeOf(name string) string { return filepath.Join("/dev", strings.ReplaceAll(name, "!", "/")) }

// NameOfNode is the inverse of [NodeOf]. What is not below /dev is returned as it is.
func NameOfNode(node string) string {
	name, found := strings.CutPrefix(node, "/dev/")
	if !found {
		return node
	}
	return strings.ReplaceAll(name, "/", "!")
}

// ParseDev parses "major:minor".
func ParseDev(s string) (Dev, error) {
	major, minor, found := strings.Cut(strings.TrimSpace(s), ":")
	if found {
		a, errA := strconv.ParseUint(major, 10, 32)
		b, errB := strconv.ParseUint(minor, 10, 32)
		if errA == nil && errB == nil {
			return Dev{uint32(a), uint32(b)}, nil
		}
	}
	return Dev{}, fmt.Errorf("%q is not a device number: want major:minor, such as 7:0", s)
}
