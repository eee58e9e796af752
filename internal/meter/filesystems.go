package meter

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/journal"
)

// filesystem is one mounted ext4, ext4nvj or jfsnvj, in any mount namespace.
type filesystem struct {
	driver string
	name   string // of the disk, partition or mapping, in /sys/class/block
	dev    blockdev.Dev
	disk   blockdev.Disk
	// copied is the number of the device if its writes reach the disk in copies, where
	// they cannot be recognised; else 0.
	copied uint32
	// below are the several disks below a disk that is accounted itself, if its pages
	// reach them; else nil.
	below []blockdev.Disk
	// mount differs for each mounted file system, also of one device.
	mount uint64
}

// Names of the drivers whose file systems are accounted. ext4nvj and jfsnvj have
// their journal in memory (docs/ext4nvj.md, docs/jfsnvj.md).
const (
	ext4Driver    = "ext4"
	ext4nvjDriver = string(journal.Ext4NVJ)
	jfsnvjDriver  = string(journal.JFSNVJ)
)

// jfsBlockBytes is the only block size of JFS on Linux.
const jfsBlockBytes = 4096

// facts returns the block size in bytes, and the device of an external journal if its
// bytes must be counted there; 0 if the superblock cannot be read, which affects only
// estimates and such journals.
func (f filesystem) facts() (blockBytes uint64, journal uint32) {
	if f.driver == jfsnvjDriver {
		return jfsBlockBytes, 0
	}
	superblock, err := ext4.ReadSuperblock(blockdev.NodeOf(f.name))
	if err != nil {
		return 0, 0
	}
	if superblock.External() {
		disk, err := blockdev.Host.LookupDev(superblock.JournalDev)
		if err == nil && (copiedFrom(disk) != 0 || noteOn(disk) != "") {
			journal = disk.Dev.Kernel()
		}
	}
	return uint64(superblock.BlockSizeBytes), journal
}

func mountedFilesystems(sysfs string) ([]filesystem, error) {
	var found []filesystem
	for _, driver := range []string{ext4Driver, ext4nvjDriver, jfsnvjDriver} {
		mounted, err := mountedBy(sysfs, driver)
		if err != nil {
			return nil, err
		}
		found = append(found, mounted...)
	}
	return found, nil
}

// mountedBy lists the file systems that a driver has mounted: /sys/fs/ext4, or
// /proc/fs/jfsnvj, which unlike /proc/mounts are independent of mount namespaces. A
// disk that is removed meanwhile is skipped.
func mountedBy(sysfs, driver string) ([]filesystem, error) {
	directory, mountOf := filepath.Join(sysfs, "fs", driver), mountByDirectory
	if driver == jfsnvjDriver {
		directory, mountOf = filepath.Join("/proc/fs", driver), mountByJournal
	}
	entries, err := os.ReadDir(directory)
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
		mount, err := mountOf(filepath.Join(directory, entry.Name()))
		if err != nil {
			continue
		}
		found = append(found, filesystem{driver: driver, name: entry.Name(), dev: dev, disk: accountedDisk(disk), copied: copiedFrom(disk), below: severalBelow(disk), mount: mount})
	}
	return found, nil
}

// mountByDirectory is filesystem.mount: the kernel makes the directory at each mount,
// and numbers them in order.
func mountByDirectory(directory string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(directory, &st)
	return st.Ino, err
}

// mountByJournal is filesystem.mount: the journal has a new UUID at each mount. In
// /proc numbers are used again.
func mountByJournal(directory string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(directory, "nvjournal"))
	if err != nil {
		return 0, err
	}
	hash := fnv.New64a()
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "uuid ") {
			_, _ = hash.Write([]byte(line)) // it never fails
		}
	}
	return hash.Sum64(), nil
}

// accountedDisk is the only underlying disk of a device, which has the scheduler and
// its weights. A device on several disks is accounted itself, by the bios that are
// submitted to it.
func accountedDisk(disk blockdev.Disk) blockdev.Disk {
	if bottom, err := disk.Bottom(); err == nil {
		return bottom
	}
	return disk
}

// copiedFrom is filesystem.copied for a device.
func copiedFrom(disk blockdev.Disk) uint32 {
	if passes, err := disk.PassesPagesOn(); err == nil && !passes && accountedDisk(disk) != disk {
		return disk.Dev.Kernel()
	}
	return 0
}

// severalBelow is filesystem.below for a device.
func severalBelow(device blockdev.Disk) []blockdev.Disk {
	below, err := device.Physical()
	if err != nil || len(below) < 2 {
		return nil
	}
	if copies, err := device.CopiesBelow(); err != nil || copies != "" {
		return nil
	}
	return below
}

// noteOn says how a device is accounted that is on several disks, and how control
// handles it; "" for others.
func noteOn(device blockdev.Disk) string {
	below, err := device.Physical()
	if err != nil || len(below) < 2 {
		return ""
	}
	names := make([]string, len(below))
	for i, disk := range below {
		names[i] = disk.Name
	}
	list := strings.Join(names, ", ")
	if copies, err := device.CopiesBelow(); err != nil || copies != "" {
		return "counted when submitted; control refuses it: the kernel charges no container what " + copies + " writes to " + list
	}
	return "counted when submitted; control corrects weights on each of the disks below: " + list
}

// volumeOn returns the name of the Daybook volume whose image a loop device
// has: the image is POOL/volumes/NAME/image (package volume); "" for other
// disks.
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

// Mounted is a mounted ext4 file system.
type Mounted struct {
	// Dev is its device, and Number the same as in the kernel's tracepoints.
	Dev    blockdev.Dev
	Number uint32
	// Mount differs for each mounted file system, also of one device.
	Mount uint64
}

// Filesystems lists the mounted ext4 file systems on a disk ("" means all disks).
// ext4nvj and jfsnvj are not included, because their log writes go to no disk.
func Filesystems(device string) ([]Mounted, error) {
	found, err := mountedFilesystems("/sys")
	if err != nil {
		return nil, err
	}
	var mounted []Mounted
	for _, fs := range found {
		if fs.driver != ext4Driver {
			continue
		}
		if device != "" {
			disk, err := blockdev.Lookup(device)
			if err != nil {
				return nil, err
			}
			if fs.disk != accountedDisk(disk) {
				continue
			}
		}
		mounted = append(mounted, Mounted{Dev: fs.dev, Number: fs.dev.Kernel(), Mount: fs.mount})
	}
	return mounted, nil
}

// MountedFrom returns the ext4 that is mounted from the device with that
// number, as in the kernel's tracepoints.
func MountedFrom(number uint32) (Mounted, bool) {
	dev := blockdev.DevOfKernel(number)
	name, err := blockdev.DeviceName(dev)
	if err != nil {
		return Mounted{}, false
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join("/sys/fs", ext4Driver, name), &st); err != nil {
		return Mounted{}, false
	}
	return Mounted{Dev: dev, Number: number, Mount: st.Ino}, true
}
