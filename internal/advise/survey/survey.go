// Package survey puts together what advise predicts from: the requests of one measured
// interval, how a file system is mounted, and what its disk has space for. It changes nothing.
package survey

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/advise"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
)

// MinVolumeBytes is the least free space that counts as a place for a volume.
const MinVolumeBytes = 1 << 30

// FileSystem is a mounted ext4 with its disk.
type FileSystem struct {
	Disk blockdev.Disk
	// Mapped reports that device mapper or md is between the file system and the disk: its
	// requests are then copies. DropsFlags is as of [blockdev.Disk.DropsFlagsBelow].
	Mapped     bool
	DropsFlags string
	Mode       advise.Mode
	Rotational bool
	// ByWeight reports that the disk's scheduler divides its time by weights, and keeps the
	// disk for a cgroup whose next request comes soon.
	ByWeight bool
	// SizeBytes is that of the disk.
	SizeBytes uint64
	// DeviceVolume and ImageVolume say why there is no place for such a volume; ""
	// means that there is. MemoryJournal the same.
	DeviceVolume, ImageVolume, MemoryJournal string
}

// ErrMemoryJournal: the model is for journals on disks.
var ErrMemoryJournal = errors.New("the journal is in memory already")

// Of surveys the file system on a device, by its name in /sys/class/block.
func Of(device string) (FileSystem, error) {
	upper, err := blockdev.Lookup(device)
	if err != nil {
		return FileSystem{}, err
	}
	disk, err := upper.Bottom()
	if err != nil {
		return FileSystem{}, err
	}
	f := FileSystem{Disk: disk, Mapped: upper.Dev != disk.Dev}
	if f.DropsFlags, err = upper.DropsFlagsBelow(); err != nil {
		return f, err
	}
	if err := checkJournal(upper.Dev); err != nil {
		return f, err
	}
	options, err := ext4.MountedOptions(device)
	if err != nil {
		return f, err
	}
	f.Mode = ModeOf(options)
	rotational, _ := disk.Queue("rotational")
	f.Rotational = rotational == "1"
	f.ByWeight = byWeight(disk)
	if f.SizeBytes, err = disk.SizeBytes(); err != nil {
		return f, err
	}
	f.DeviceVolume = deviceVolume(upper, device, disk, f.SizeBytes)
	f.ImageVolume = imageVolume(disk)
	f.MemoryJournal = memoryJournal()
	return f, nil
}

// checkJournal fails if the file system's journal is in memory.
func checkJournal(dev blockdev.Dev) error {
	mounts, err := blockdev.MountsOf(dev)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m.Type == ext4.MemoryType || m.Type == ext4.MemoryJFSType {
			return fmt.Errorf("%w (%s)", ErrMemoryJournal, m.Type)
		}
	}
	return nil
}

// byWeight reports whether a disk has BFQ, and BFQ keeps the disk for a cgroup. No other
// scheduler has this tunable.
func byWeight(disk blockdev.Disk) bool {
	idle, err := disk.Tunable("slice_idle")
	return err == nil && strings.TrimSpace(idle) != "0"
}

// ModeOf returns the mode of a file system from all its mount options.
func ModeOf(options []string) advise.Mode {
	switch ext4.DataMode(options) {
	case "writeback":
		return advise.Writeback
	case "journal":
		return advise.Journal
	}
	// The kernel lists the one that is in force, also where it is the default.
	if slices.Contains(options, "dioread_nolock") {
		return advise.Unwritten
	}
	return advise.Ordered
}

// deviceVolume says why no volume on a device of its own fits on the disk.
func deviceVolume(upper blockdev.Disk, device string, disk blockdev.Disk, sizeBytes uint64) string {
	if layers, err := upper.Layers(); err == nil && slices.ContainsFunc(layers, func(l blockdev.Layer) bool { return l.Kind == "lvm" }) {
		return "" // a further logical volume
	}
	if device == disk.Name {
		return "the file system has the whole disk " + disk.Name + "; only another disk, or a smaller file system, makes space for a device"
	}
	free, err := unpartitioned(disk, sizeBytes)
	if err != nil {
		return "the free space of " + disk.Name + " is not known: " + err.Error()
	}
	if free < MinVolumeBytes {
		return fmt.Sprintf("%s has no space for another partition (%d MiB are free)", disk.Name, free>>20)
	}
	return ""
}

// unpartitioned is the space of a disk that no partition has.
func unpartitioned(disk blockdev.Disk, sizeBytes uint64) (uint64, error) {
	files, err := filepath.Glob(filepath.Join(blockdev.Host.Sys, "block", disk.Name, disk.Name+"*", "size"))
	if err != nil {
		return 0, err
	}
	var used uint64
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		sectors, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, err
		}
		used += sectors * blockdev.SectorBytes
	}
	return sizeBytes - min(sizeBytes, used), nil
}

// imageVolume says why no image of a volume has a place on the disk.
func imageVolume(disk blockdev.Disk) string {
	mounts, err := blockdev.Mounts()
	if err != nil {
		return "the mounts cannot be listed: " + err.Error()
	}
	for _, m := range mounts {
		if m.Type != "xfs" {
			continue
		}
		upper, err := blockdev.Host.LookupDev(m.Dev)
		if err != nil {
			continue
		}
		if bottom, err := upper.Bottom(); err != nil || bottom.Dev != disk.Dev {
			continue
		}
		var space unix.Statfs_t
		if unix.Statfs(m.Point, &space) == nil && space.Bavail*uint64(space.Bsize) >= MinVolumeBytes {
			return ""
		}
	}
	return "no XFS with free space is on " + disk.Name + "; images on ext4 share its journal again"
}

// memoryJournal says why there can be no journal in memory.
func memoryJournal() string {
	regions, err := filepath.Glob(filepath.Join(blockdev.Host.Sys, "block", "pmem*"))
	if err == nil && len(regions) > 0 {
		return ""
	}
	return "the host has no persistent memory (/sys/block/pmem*)"
}

// Measured puts the measurement of a file system together with the survey. share is the
// container's part of the disk by its weight.
func (f FileSystem) Measured(in advise.Input, volumeBytes uint64, share float64) advise.Input {
	in.Mode, in.Rotational = f.Mode, f.Rotational
	in.DeviceVolume, in.ImageVolume, in.MemoryJournal = f.DeviceVolume, f.ImageVolume, f.MemoryJournal
	if f.ByWeight {
		in.Share = share
	}
	if volumeBytes > 0 && f.SizeBytes > 0 {
		in.SpanShare = min(1, float64(volumeBytes)/float64(f.SizeBytes))
	}
	return in
}
