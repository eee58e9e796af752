package meter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
)

// filesystem is one mounted ext4 or ext4nvj, in whatever mount namespace.
type filesystem struct {
	driver string
	name   string // of the disk, partition or mapping, in /sys/class/block
	dev    blockdev.Dev
	disk   blockdev.Disk
}

// The file systems that are accounted, by their driver's name in /sys/fs. ext4nvj
// has its journal in memory (docs/ext4nvj.md).
const (
	ext4Driver    = "ext4"
	ext4nvjDriver = "ext4nvj"
)

// blockBytes is the block size; 0 where the superblock cannot be read, which
// only matters to estimates.
func (f filesystem) blockBytes() uint64 {
	superblock, err := ext4.ReadSuperblock("/dev/" + strings.ReplaceAll(f.name, "!", "/"))
	if err != nil {
		return 0
	}
	return uint64(superblock.BlockSizeBytes)
}

func mountedFilesystems(sysfs string) ([]filesystem, error) {
	var found []filesystem
	for _, driver := range []string{ext4Driver, ext4nvjDriver} {
		mounted, err := mountedBy(sysfs, driver)
		if err != nil {
			return nil, err
		}
		found = append(found, mounted...)
	}
	return found, nil
}

// mountedBy lists what a driver has mounted (/sys/fs/ext4, which unlike
// /proc/mounts knows no mount namespaces). A disk that goes away meanwhile is
// passed over.
func mountedBy(sysfs, driver string) ([]filesystem, error) {
	entries, err := os.ReadDir(filepath.Join(sysfs, "fs", driver))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the module is not loaded: nothing is mounted
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the mounted %s file systems: %w", driver, err)
	}
	var found []filesystem
	for _, entry := range entries {
		number, err := os.ReadFile(filepath.Join(sysfs, "class/block", entry.Name(), "dev"))
		if err != nil {
			continue // "features", or gone
		}
		dev, err := blockdev.ParseDev(string(number))
		if err != nil {
			return nil, fmt.Errorf("%s/class/block/%s/dev: %w", sysfs, entry.Name(), err)
		}
		disk, err := blockdev.Lookup(dev.String())
		if err != nil {
			continue
		}
		found = append(found, filesystem{driver: driver, name: entry.Name(), dev: dev, disk: lowestDisk(sysfs, disk)})
	}
	return found, nil
}

// lowestDisk goes down from a mapped device (LVM, dm-crypt) to the one disk
// below it, where the scheduler and its weights are. A device over several
// disks is left as it is.
func lowestDisk(sysfs string, disk blockdev.Disk) blockdev.Disk {
	for {
		slaves, err := os.ReadDir(filepath.Join(sysfs, "block", disk.Name, "slaves"))
		if err != nil || len(slaves) != 1 {
			return disk
		}
		below, err := blockdev.Lookup(slaves[0].Name())
		if err != nil || below == disk {
			return disk
		}
		disk = below
	}
}

// volumeOn is the name of the Daybook volume whose image a loop device has: the
// image is POOL/volumes/NAME/image (package volume); "" for other disks.
func volumeOn(disk blockdev.Disk) string {
	image, err := disk.BackingFile()
	if err != nil || filepath.Base(image) != "image" {
		return ""
	}
	home := filepath.Dir(image)
	volumes := filepath.Dir(home)
	if filepath.Base(volumes) != "volumes" {
		return ""
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(volumes), "daybook-pool.json")); err != nil {
		return ""
	}
	return filepath.Base(home)
}

// Filesystems lists the mounted ext4 file systems on a disk ("": on all), with
// their numbers as the kernel's tracepoints give them. Not ext4nvj's: what its
// calls cost goes to no disk.
func Filesystems(device string) (map[blockdev.Dev]uint32, error) {
	found, err := mountedFilesystems("/sys")
	if err != nil {
		return nil, err
	}
	numbers := make(map[blockdev.Dev]uint32, len(found))
	for _, fs := range found {
		if fs.driver != ext4Driver {
			continue
		}
		if device != "" {
			disk, err := blockdev.Lookup(device)
			if err != nil {
				return nil, err
			}
			if fs.disk != lowestDisk("/sys", disk) {
				continue
			}
		}
		numbers[fs.dev] = kernelDev(fs.dev)
	}
	return numbers, nil
}

// kernelDev is the number as the kernel's tracepoints give it.
func kernelDev(d blockdev.Dev) uint32 { return d.Major<<20 | d.Minor }
