package guestvolumes

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/program"
)

// MappedOnXFS is an image for each container on an XFS, as in fixture.PlacedOnXFS, but
// under a mapping of the image's extents (dm-linear) in place of a loop device. The
// jbd2 threads are moved by hand. Daybook offers no such volume: nothing keeps the file
// system from moving the extents.
const MappedOnXFS fixture.Arrangement = "M"

// mapImages gives each container a mapping of the extents of its image. A mounted file
// system claims its device for itself, so the device mapper refuses to map that device
// (EBUSY). It shares a claim with itself only. So the file system is on a mapping of the
// whole disk.
func (s *pair) mapImages(ctx context.Context) error {
	bytes, err := s.Disk.Device.SizeBytes()
	if err != nil {
		return err
	}
	whole, err := s.mapping(ctx, "daybook-pool", fmt.Sprintf("0 %d linear %s 0", bytes/blockdev.SectorBytes, s.Disk.Device.Dev))
	if err != nil {
		return err
	}
	directory, err := s.MountNewXFS(ctx, whole.Node(), "pool")
	if err != nil {
		return err
	}
	for n := range s.containers {
		t := &s.containers[n]
		image := filepath.Join(directory, t.Name+".img")
		table, err := allocate(image, writers*t.fileBytes+otherBytes, s.Disk.Device.Dev)
		if err != nil {
			return err
		}
		mapping, err := s.mapping(ctx, "daybook-image-"+t.Name, table)
		if err != nil {
			return err
		}
		if err := s.MountPlaced(ctx, t.Container, blockdev.Partition{Node: mapping.Node(), Dev: mapping.Dev}, journalBytes, ""); err != nil {
			return err
		}
	}
	return nil
}

// mapping makes a device of the device mapper until Close. In the guest there is no
// udev.
func (s *pair) mapping(ctx context.Context, name, table string) (blockdev.Disk, error) {
	if err := os.Setenv("DM_DISABLE_UDEV", "1"); err != nil {
		return blockdev.Disk{}, err
	}
	dmsetup := func(ctx context.Context, args ...string) (string, error) {
		out, err := program.Run(ctx, program.Command{Path: "dmsetup", Args: args, IfMissing: "install dmsetup"})
		return strings.TrimSpace(string(out)), err
	}
	if _, err := dmsetup(ctx, "create", name, "--table", table); err != nil {
		return blockdev.Disk{}, err
	}
	s.AtEnd(func(ctx context.Context) error { _, err := dmsetup(ctx, "remove", name); return err })
	node, err := dmsetup(ctx, "info", "-c", "--noheadings", "-o", "blkdevname", name)
	if err != nil {
		return blockdev.Disk{}, err
	}
	return blockdev.Lookup(node)
}

const (
	fiemap            = 0xc020660b // FS_IOC_FIEMAP, _IOWR('f', 11, struct fiemap)
	fiemapSync        = 1          // FIEMAP_FLAG_SYNC
	fiemapUnusable    = 2 | 4 | 8  // FIEMAP_EXTENT_UNKNOWN, _DELALLOC, _ENCODED
	fiemapShared      = 0x2000     // FIEMAP_EXTENT_SHARED
	fiemapHeadBytes   = 32
	fiemapExtentBytes = 56
	fiemapMost        = 1000
)

// allocate makes a file of that size with blocks of its own, and returns a table of
// dm-linear with its extents on the disk. What is written through the mapping is not in
// the file: its extents stay unwritten.
func allocate(path string, bytes int64, disk blockdev.Dev) (table string, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	if err := unix.Fallocate(int(file.Fd()), 0, 0, bytes); err != nil {
		return "", fmt.Errorf("cannot allocate %s: %w", path, err)
	}
	if err := file.Sync(); err != nil {
		return "", err
	}
	argument := make([]byte, fiemapHeadBytes+fiemapMost*fiemapExtentBytes)
	binary.NativeEndian.PutUint64(argument[8:], uint64(bytes))
	binary.NativeEndian.PutUint32(argument[16:], fiemapSync)
	binary.NativeEndian.PutUint32(argument[24:], fiemapMost)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), fiemap, uintptr(unsafe.Pointer(&argument[0]))); errno != 0 {
		return "", fmt.Errorf("FS_IOC_FIEMAP of %s: %w", path, errno)
	}
	extents := argument[fiemapHeadBytes:]
	return linearTable(path, extents[:fiemapExtentBytes*int(binary.NativeEndian.Uint32(argument[20:]))], bytes, disk)
}

// linearTable maps the extents of FIEMAP's answer, which must cover the whole file.
func linearTable(path string, extents []byte, bytes int64, disk blockdev.Dev) (string, error) {
	var lines []string
	var at uint64
	for ; len(extents) > 0; extents = extents[fiemapExtentBytes:] {
		logical, physical, length := binary.NativeEndian.Uint64(extents), binary.NativeEndian.Uint64(extents[8:]), binary.NativeEndian.Uint64(extents[16:])
		if flags := binary.NativeEndian.Uint32(extents[40:]); logical != at || flags&(fiemapUnusable|fiemapShared) != 0 {
			return "", fmt.Errorf("%s cannot be mapped: its extent at %d follows %d, with flags %#x", path, logical, at, flags)
		}
		length = min(length, uint64(bytes)-at)
		lines = append(lines, fmt.Sprintf("%d %d linear %s %d", at/blockdev.SectorBytes, length/blockdev.SectorBytes, disk, physical/blockdev.SectorBytes))
		at += length
	}
	if at != uint64(bytes) {
		return "", fmt.Errorf("%s cannot be mapped: %d of its %d bytes have blocks", path, at, bytes)
	}
	return strings.Join(lines, "\n"), nil
}
