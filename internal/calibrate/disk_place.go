package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/internal/trusted"
)

// place is where a disk is measured: a file on it, or the disk itself.
type place struct {
	disk blockdev.Disk
	// raw: the disk itself. Else dir has the private directory of the file.
	raw bool
	dir string
	// bytes is the length of the file or of the disk.
	bytes      uint64
	rootCgroup string
	v2         bool
}

// findPlace changes nothing.
func findPlace(ctx context.Context, o DiskOptions) (place, error) {
	found, err := blockdev.LookupForWriting(o.Device)
	if err != nil {
		return place{}, unsuitable(o.Device, "%w", err)
	}
	disk, err := found.Bottom()
	if err != nil {
		return place{}, unsuitable(o.Device, "%w; io.cost divides each of them by a model of its own: name one", err)
	}
	if !disk.HasQueues() {
		return place{}, unsuitable(disk.Node(), "its driver takes I/O past request queues, and io.cost needs them; divide it by limits: daybook control --device %s", safetext.Word(disk.Name))
	}
	if counted, err := disk.Queue("iostats"); err == nil && counted == "0" {
		return place{}, unsuitable(disk.Node(), "the kernel does not count its I/O, so that nobody can check what reaches it: echo 1 > %s",
			blockdev.QueueFile(disk.Name, "iostats"))
	}
	p := place{disk: disk, raw: o.RawWrites, dir: o.Dir}
	if p.rootCgroup, p.v2, err = rootCgroup(); err != nil {
		return place{}, err
	}
	if p.raw {
		p.bytes, err = disk.SizeBytes()
		return p, errors.Join(err, checkRaw(ctx, disk))
	}
	if p.dir == "" {
		p.dir, err = roomiest(disk)
	} else if p.dir, err = filepath.Abs(p.dir); err == nil { // fio has a working directory of its own
		err = checkOn(p.dir, disk)
	}
	if err != nil {
		return place{}, err
	}
	free, err := freeBytes(p.dir)
	if err != nil {
		return place{}, err
	}
	p.bytes = o.FileBytes
	if p.bytes == 0 {
		p.bytes = max(MinDiskFileBytes, min(defaultDiskFileBytes, free/8))
	}
	if p.bytes = p.bytes / layoutBytes * layoutBytes; p.bytes > free/2 {
		return place{}, unsuitable(p.dir, "a file of %d bytes would take more than half of the %d free bytes; choose another directory or --size", p.bytes, free)
	}
	return p, nil
}

// checkRaw refuses a disk that is in use or holds something.
func checkRaw(ctx context.Context, disk blockdev.Disk) error {
	if err := disk.CheckUnused(); err != nil {
		return unsuitable(disk.Node(), "raw writes would overwrite it, and %w; name a directory on it instead", err)
	}
	found, err := ext4.Signatures(ctx, disk.Node())
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("raw writes would overwrite what it holds: %q; if nobody needs that: wipefs --all %s", found, disk.Node())
	}
	if err != nil {
		return unsuitable(disk.Node(), "%w", err)
	}
	return nil
}

// inPlace are the file systems that overwrite a file's blocks where they are.
var inPlace = map[string]bool{"ext2": true, "ext3": true, "ext4": true, "xfs": true}

// roomiest is the mount point of the disk's file system with the most free room. It leaves
// out those that another user may write, such as that of a container's volume.
func roomiest(disk blockdev.Disk) (string, error) {
	mounts, err := blockdev.Mounts()
	if err != nil {
		return "", err
	}
	best, most := "", uint64(0)
	for _, mount := range mounts {
		var st unix.Statfs_t
		if !inPlace[mount.Type] || mount.Root != "/" || unix.Statfs(mount.Point, &st) != nil || st.Flags&unix.ST_RDONLY != 0 {
			continue
		}
		if free := st.Bavail * uint64(st.Bsize); free > most && checkOn(mount.Point, disk) == nil && trusted.StickyDirectory.CheckPath(mount.Point) == nil {
			best, most = mount.Point, free
		}
	}
	if best == "" {
		return "", unsuitable(disk.Node(), "this process sees no writable ext4 or XFS file system on it whose root directory only you may write; "+
			"name a directory on one: daybook calibrate --io-cost %s DIR; if nothing on the disk is needed, overwrite it: --raw-writes", safetext.Word(disk.Name))
	}
	return best, nil
}

// checkOn refuses a directory that is not on the disk alone.
func checkOn(dir string, disk blockdev.Disk) error {
	info, err := os.Stat(dir)
	if err != nil {
		return unsuitable(dir, "%w; want a directory on a file system of %s", err, disk.Name)
	}
	if !info.IsDir() {
		return unsuitable(dir, "it is not a directory")
	}
	found, err := blockdev.Lookup(dir)
	if err == nil {
		found, err = found.Bottom()
	}
	if err != nil {
		return unsuitable(dir, "%w", err)
	}
	if found.Dev != disk.Dev {
		return unsuitable(dir, "it is on %s and not on %s", found.Name, disk.Name)
	}
	mount, err := blockdev.MountOf(dir)
	if err != nil {
		return unsuitable(dir, "%w", err)
	}
	if !inPlace[mount.Type] {
		return unsuitable(dir, "it is on %s, which writes changed blocks to a new place, or not to the disk; choose a directory on ext4 or XFS", mount.Type)
	}
	return nil
}

func freeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, unsuitable(dir, "%w", err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// layoutBytes is the size of a write that fills the file.
const layoutBytes = 1 << 20

// open gives what fio reads and overwrites. closeFile closes it, and removes a file.
func (p place) open(ctx context.Context) (file *os.File, closeFile func() error, err error) {
	if p.raw {
		// Held, so that nobody mounts it meanwhile.
		file, err := os.OpenFile(p.disk.Node(), os.O_RDONLY|unix.O_EXCL, 0)
		if err != nil {
			return nil, nil, unsuitable(p.disk.Node(), "%w", err)
		}
		return file, file.Close, nil
	}
	work, err := openWorkDir(p.dir)
	if err != nil {
		return nil, nil, err
	}
	file, err = os.OpenFile(filepath.Join(work.path(), "file"), os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_DIRECT, 0o600)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("cannot make the file of the tests: %w", withoutPath(err)), work.close())
	}
	closeFile = func() error { return errors.Join(file.Close(), work.close()) }
	if err := fill(ctx, file, p.bytes); err != nil {
		return nil, nil, errors.Join(err, closeFile())
	}
	return file, closeFile, nil
}

// fill writes the whole file: blocks that were never written are not read from the
// disk, and writing them changes metadata.
func fill(ctx context.Context, file *os.File, bytes uint64) (err error) {
	if err := unix.Fallocate(int(file.Fd()), 0, 0, int64(bytes)); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("cannot allocate the file of the tests, %d bytes: %w", bytes, err)
	}
	block, err := unix.Mmap(-1, 0, layoutBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Munmap(block)) }()
	// No disk can shorten it.
	if _, err := unix.Getrandom(block, 0); err != nil {
		return err
	}
	for at := uint64(0); at < bytes; at += layoutBytes {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := file.WriteAt(block, int64(at)); err != nil {
			return fmt.Errorf("cannot fill the file of the tests: %w", withoutPath(err))
		}
	}
	return file.Sync()
}
