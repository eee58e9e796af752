package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Partition is a part of a disk, with its own device number.
type Partition struct {
	Node string
	Dev  Dev
}

// include/uapi/linux/blkpg.h tells the kernel about partitions without a
// partition table: nothing is written to the disk.
const (
	blkpgAdd    = 1
	blkpgDelete = 2

	partitionAlign   = 1 << 20
	partitionAppears = 5 * time.Second
)

// blkpgPartition is struct blkpg_partition.
type blkpgPartition struct {
	start, length int64
	number        int32
	_             [64]byte // devname, unused
	_             [64]byte // volname, unused
	_             [4]byte
}

// blkpgArgument is struct blkpg_ioctl_arg.
type blkpgArgument struct {
	op, flags, length int32
	data              unsafe.Pointer
}

// AddPartitions divides a disk that the caller owns into count partitions of the
// given number of bytes each, from its start. They exist only in the kernel, until
// the next reboot.
func AddPartitions(disk Disk, count int, bytes uint64) ([]Partition, error) {
	// Those of a killed run.
	if err := RemovePartitions(disk, count); err != nil {
		return nil, err
	}
	parts := make([]Partition, count)
	for n := range parts {
		start := partitionAlign + uint64(n)*bytes
		if err := blkpg(disk, blkpgAdd, blkpgPartition{start: int64(start), length: int64(bytes), number: int32(n + 1)}); err != nil {
			return nil, fmt.Errorf("cannot make partition %d of %s: %w", n+1, disk.Node(), err)
		}
		var err error
		if parts[n], err = awaitPartition(disk, n+1); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// RemovePartitions removes the first partitions, as far as they exist; none may
// be in use.
func RemovePartitions(disk Disk, count int) error {
	for n := range count {
		if err := removePartition(disk, n+1); err != nil {
			return err
		}
	}
	return nil
}

// removePartition does nothing if there is no such partition.
func removePartition(disk Disk, number int) error {
	err := blkpg(disk, blkpgDelete, blkpgPartition{number: int32(number)})
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("cannot remove partition %d of %s: %w", number, disk.Node(), err)
	}
	return nil
}

// partitionNumbers returns the partitions that the kernel knows of a disk.
func partitionNumbers(disk Disk) ([]int, error) {
	files, err := filepath.Glob(disk.path("*/partition"))
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the listing
		}
		if err != nil {
			return nil, err
		}
		number, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		numbers = append(numbers, number)
	}
	return numbers, nil
}

func blkpg(disk Disk, op int32, p blkpgPartition) error {
	fd, err := unix.Open(disk.Node(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var pinned runtime.Pinner
	pinned.Pin(&p)
	defer pinned.Unpin()
	argument := blkpgArgument{op: op, length: int32(unsafe.Sizeof(p)), data: unsafe.Pointer(&p)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.BLKPG, uintptr(unsafe.Pointer(&argument))); errno != 0 {
		return errno
	}
	return nil
}

// partitionName is the kernel's name: loop0p1, vda1 (block/partitions/core.c,
// add_partition).
func partitionName(disk string, number int) string {
	if last := disk[len(disk)-1]; '0' <= last && last <= '9' {
		disk += "p"
	}
	return fmt.Sprintf("%s%d", disk, number)
}

func awaitPartition(disk Disk, number int) (Partition, error) {
	name := partitionName(disk.Name, number)
	p := Partition{Node: NodeOf(name)}
	deadline := time.Now().Add(partitionAppears)
	for {
		text, err := os.ReadFile(filepath.Join("/sys/class/block", name, "dev"))
		if err == nil {
			_, err = os.Stat(p.Node)
		}
		if err == nil {
			p.Dev, err = ParseDev(strings.TrimSpace(string(text)))
			return p, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return p, err
		}
		if time.Now().After(deadline) {
			return p, fmt.Errorf("the kernel shows no partition %s", name)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
