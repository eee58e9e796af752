package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/filesystem"
)

// Overview is a short report on a volume, made without waiting for locks and with a few
// reads of small files: its record, and figures of the mounted file system. [Status]
// has more. From a container with the host's process IDs it also sees what only the host mounts.
type Overview struct {
	Record
	// AllocatedBytes is the space that the image takes in the pool; 0 without an image.
	AllocatedBytes uint64
	// Mountpoint is "" while the volume is not mounted. UsedBytes, FreeBytes
	// and Ext4Errors are the mounted file system's; the last one counts the
	// errors that ext4 has found since the file system was last checked. The
	// bytes are 0 if this process may not open the file system.
	Mountpoint           string
	UsedBytes, FreeBytes uint64
	Ext4Errors           uint64
	// Memory is the use of the slice of a mounted volume whose journal is in memory; nil
	// for other volumes.
	Memory *MemoryUse
	// FreezeAbandoned is as in [Status].
	FreezeAbandoned bool
	// Problem says what is damaged or needs a repair; "" if nothing is known. An
	// operation in progress shows as a problem, too.
	Problem string
}

// Overview gives a short report on every volume, sorted by name. Its cost is linear:
// mounts are read once. It does not wait for processes that work on volumes. It takes the
// lock of a volume that is recorded as frozen for a moment, if the lock is free.
func (p *Pool) Overview() (_ []Overview, err error) {
	defer func() { err = cause.Public(err) }()
	names, err := p.files.Names()
	if err != nil {
		return nil, err
	}
	boot, err := kernel.BootID()
	if err != nil {
		return nil, err
	}
	// A volume is attached for the host, also if this process is in a pod.
	mounts, err := blockdev.MountsOfHost()
	if err != nil { // as where /proc hides the first process
		if mounts, err = blockdev.Mounts(); err != nil {
			return nil, err
		}
	}
	// The last mount at a place hides the others.
	mounted := make(map[string]blockdev.Dev, len(mounts))
	for _, mount := range mounts {
		mounted[mount.Point] = mount.Dev
	}
	all := make([]Overview, 0, len(names))
	for _, name := range names {
		record, err := p.files.Read(name)
		switch {
		case errors.Is(err, ErrNotFound): // deleted meanwhile
		case err != nil:
			all = append(all, Overview{Record: Record{Name: name}, Problem: err.Error()})
		default:
			all = append(all, p.overview(record, boot, mounted))
		}
	}
	return all, nil
}

func (p *Pool) overview(record Record, boot string, mounted map[string]blockdev.Dev) Overview {
	o := Overview{Record: record}
	var st unix.Stat_t
	nodeErr := unix.Stat(p.blocks(record).Node(), &st)
	if nodeErr == nil && record.InPool() {
		o.AllocatedBytes = uint64(st.Blocks) * 512
	}
	var fs unix.Statfs_t
	if device := mountedDevice(record, boot, mounted); device != "" {
		o.Mountpoint = record.Attachment.Target
		if unix.Statfs(seenAt(o.Mountpoint, mounted[o.Mountpoint]), &fs) == nil {
			o.UsedBytes = (fs.Blocks - fs.Bfree) * uint64(fs.Bsize)
			o.FreeBytes = fs.Bavail * uint64(fs.Bsize)
		}
		o.Ext4Errors = ext4Errors(record, device)
		o.Memory = memoryUseOf(record, device)
	}
	if o.Problem = problem(record, nodeErr, p.unfinished(record, o.Mountpoint != "")); o.Problem == "" && o.Mountpoint != "" {
		o.Problem = fileSystemProblem(record, fs.Flags, o.Ext4Errors)
	}
	if record.Frozen && record.Attachment != nil && p.freezeAbandoned(record.Name) {
		o.FreezeAbandoned, o.Problem = true, freezeAbandonedProblem
	}
	return o
}

// seenAt is the path of a file system that is mounted on a directory, for this process or for the
// host alone.
func seenAt(target string, dev blockdev.Dev) string {
	var st unix.Stat_t
	if unix.Stat(target, &st) == nil && blockdev.DevOf(st.Dev) == dev {
		return target
	}
	return filepath.Join(blockdev.RootOfInit, target)
}

// mountedDevice is the name of the device that is mounted at the volume's mount point, ""
// if it is not the volume's.
func mountedDevice(record Record, boot string, mounted map[string]blockdev.Dev) string {
	a := record.Attachment
	if a == nil || a.BootID != boot {
		return ""
	}
	dev, there := mounted[a.Target]
	if !there {
		return ""
	}
	link, err := os.Readlink(filepath.Join(blockdev.Host.Sys, "dev", "block", dev.String()))
	name := filepath.Base(link)
	if err != nil || record.InPool() && name != a.LoopDevice || !record.InPool() && dev.String() != a.DeviceNumber {
		return ""
	}
	return name
}

// ext4Errors is the superblock's count; 0 if the kernel does not report it.
func ext4Errors(record Record, device string) uint64 {
	kind := "ext4"
	if record.JournalMemory != nil {
		kind = filesystem.MemoryType(record) // JFS reports none
	}
	text, err := os.ReadFile(filepath.Join(blockdev.Host.Sys, "fs", kind, device, "errors_count"))
	if err != nil {
		return 0
	}
	count, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return count
}
