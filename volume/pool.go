package volume

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/versioned"
)

// PoolOptions are the choices of [Open].
type PoolOptions struct {
	// Create makes the pool if the directory has none; the directory itself
	// is made, too.
	Create bool
	// QuotaBytes bounds the sum of the volumes' and snapshots' sizes, when
	// the pool is made; 0 is without bound. See [Pool.SetQuota].
	QuotaBytes uint64
	// Log gets what is done besides the result; nil: nobody.
	Log *slog.Logger
}

// Pool is a directory of volumes. It holds nothing open, and several
// goroutines and processes may use the same directory.
type Pool struct {
	dir string
	log *slog.Logger
	// reached is told of each step that was recorded or done; for tests
	// that end the process there.
	reached func(step string)
	// stranger logs, once, that another user's process locks the directory.
	stranger func(pid int)
}

const (
	poolFile       = "daybook-pool.json"
	volumesDir     = "volumes"
	workDir        = "work"
	snapshotsDir   = "snapshots"
	recordFile     = "volume.json"
	snapshotRecord = "snapshot.json"
	imageFile      = "image"
	poolFormat     = 1
)

type poolRecord struct {
	Format     int    `json:"format"`
	ID         string `json:"id"`
	QuotaBytes uint64 `json:"quota_bytes"`

	unknown versioned.Unknown
}

// Open opens the pool in a directory. Errors wrap ErrNotFound if there is none
// (and none is to be made), ErrUnsupported if the directory's file system
// cannot hold one.
func Open(ctx context.Context, dir string, options PoolOptions) (_ *Pool, err error) {
	defer func() { err = public(err) }()
	p := &Pool{log: options.Log, reached: func(string) {}}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	var once sync.Once
	p.stranger = func(pid int) {
		once.Do(func() {
			p.log.Warn("another user's process has locked the pool's directory; Daybook goes on without that lock, which earlier versions used", "directory", p.dir, "pid", pid)
		})
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if options.Create {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			// Refused before the directory is made.
			if err := checkFileSystem(nearest(dir)); err != nil {
				return nil, err
			}
		}
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, fmt.Errorf("cannot make the pool: %w", err)
		}
	}
	// Resolved, for the kernel prints resolved paths of loop devices' files.
	p.dir, err = filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("pool %s %w", dir, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	_, err = p.readPool()
	if errors.Is(err, ErrNotFound) && options.Create {
		return p, p.format(ctx, options.QuotaBytes)
	}
	return p, err
}

// Dir is the pool's directory, absolute and without symbolic links.
func (p *Pool) Dir() string { return p.dir }

func (p *Pool) readPool() (record poolRecord, err error) {
	text, err := readFile(filepath.Join(p.dir, poolFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return record, fmt.Errorf("pool %s %w: it has no %s", p.dir, ErrNotFound, poolFile)
	}
	if err == nil {
		err = checkDirectories(p.dir, filepath.Join(p.dir, volumesDir), filepath.Join(p.dir, workDir))
	}
	if err != nil {
		return record, fmt.Errorf("pool %s: %w", p.dir, err)
	}
	err = versioned.CheckFormat(text, "format", poolFormat)
	if err == nil {
		record.unknown, err = versioned.Decode(text, &record)
	}
	if err == nil && record.Format != poolFormat {
		err = fmt.Errorf("format %d", record.Format)
	}
	if err != nil {
		return record, unreadable(fmt.Sprintf("%s of pool %s", poolFile, p.dir), err)
	}
	return record, nil
}

func (p *Pool) writePool(record poolRecord) error {
	text, err := versioned.Encode(record, record.unknown)
	if err != nil {
		return err
	}
	return replaceText(filepath.Join(p.dir, poolFile), append(text, '\n'))
}

// format makes the pool's directories; its record comes last.
func (p *Pool) format(ctx context.Context, quota uint64) error {
	if err := errors.Join(checkFileSystem(p.dir), checkDirectories(p.dir)); err != nil {
		return err
	}
	all, err := p.lock(ctx) // it makes the work directory
	if err != nil {
		return fmt.Errorf("cannot make the pool: %w", err)
	}
	defer all.release()
	if _, err := p.readPool(); !errors.Is(err, ErrNotFound) {
		return err // another was faster
	}
	if err := os.MkdirAll(filepath.Join(p.dir, volumesDir), 0o711); err != nil {
		return fmt.Errorf("cannot make the pool: %w", err)
	}
	return p.writePool(poolRecord{Format: poolFormat, ID: newID(), QuotaBytes: quota})
}

// checkFileSystem refuses what images do not outlive.
func checkFileSystem(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("pool %s: %w", dir, err)
	}
	switch int64(st.Type) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return fmt.Errorf("pool %s lies in memory (tmpfs), where no volume outlives the host: %w; choose a directory on a disk", dir, ErrUnsupported)
	case unix.OVERLAYFS_SUPER_MAGIC:
		return fmt.Errorf("pool %s lies on an overlay: %w; choose a directory on a disk's own file system", dir, ErrUnsupported)
	}
	return nil
}

// nearest is the directory, or the nearest above it that exists.
func nearest(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == "/" {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// SetQuota bounds the sum of the volumes' and snapshots' sizes; 0 is without
// bound. A quota below what is there already keeps new ones out.
func (p *Pool) SetQuota(ctx context.Context, bytes uint64) (err error) {
	defer func() { err = public(err) }()
	all, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer all.release()
	record, err := p.readPool()
	if err != nil {
		return err
	}
	record.QuotaBytes = bytes
	return p.writePool(record)
}

// Usage is how full a pool is, in bytes.
type Usage struct {
	// QuotaBytes is 0 without bound.
	QuotaBytes uint64 `json:"quota_bytes"`
	// PromisedBytes is the sum of the sizes, AllocatedBytes what their
	// images take of the pool now.
	PromisedBytes  uint64 `json:"promised_bytes"`
	AllocatedBytes uint64 `json:"allocated_bytes"`
	// FreeBytes is what the pool's file system has left.
	FreeBytes uint64 `json:"free_bytes"`
	SizeBytes uint64 `json:"size_bytes"`
}

// Usage tells how full the pool is.
func (p *Pool) Usage() (_ Usage, err error) {
	defer func() { err = public(err) }()
	record, err := p.readPool()
	if err != nil {
		return Usage{}, err
	}
	usage := Usage{QuotaBytes: record.QuotaBytes}
	for _, st := range p.images() {
		usage.PromisedBytes += uint64(st.Size)
		usage.AllocatedBytes += uint64(st.Blocks) * 512
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(p.dir, &fs); err != nil {
		return usage, err
	}
	usage.FreeBytes = fs.Bavail * uint64(fs.Bsize)
	usage.SizeBytes = fs.Blocks * uint64(fs.Bsize)
	return usage, nil
}

// images finds all that there are, by inode, also of what is being made. That
// comes first, for it may get its place meanwhile.
func (p *Pool) images() map[uint64]unix.Stat_t {
	images := make(map[uint64]unix.Stat_t)
	add := func(dir string) (entries []os.DirEntry) {
		entries, _ = os.ReadDir(dir) // what is not there has no images
		for _, entry := range entries {
			var st unix.Stat_t
			if unix.Lstat(filepath.Join(dir, entry.Name(), imageFile), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
				images[st.Ino] = st
			}
		}
		return entries
	}
	add(filepath.Join(p.dir, workDir))
	for _, volume := range add(filepath.Join(p.dir, volumesDir)) {
		add(filepath.Join(p.dir, volumesDir, volume.Name(), snapshotsDir))
	}
	return images
}

// checkQuota says whether bytes more may be promised; the pool is locked.
func (p *Pool) checkQuota(bytes uint64) error {
	usage, err := p.Usage()
	if err != nil {
		return err
	}
	if usage.QuotaBytes != 0 && usage.PromisedBytes+bytes > usage.QuotaBytes {
		return fmt.Errorf("%w: its quota is %d bytes, %d are promised, %d more would be too many", ErrNoSpace, usage.QuotaBytes, usage.PromisedBytes, bytes)
	}
	return nil
}

func (p *Pool) volumeDir(name string) string { return filepath.Join(p.dir, volumesDir, name) }
func (p *Pool) image(name string) string     { return filepath.Join(p.volumeDir(name), imageFile) }

func (p *Pool) snapshotDir(name, snapshot string) string {
	return filepath.Join(p.volumeDir(name), snapshotsDir, snapshot)
}

// names lists the volumes, sorted.
func (p *Pool) names() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(p.dir, volumesDir))
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.dir, err)
	}
	var names []string
	for _, entry := range entries {
		if CheckName(entry.Name()) == nil {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// read reads a volume's record.
func (p *Pool) read(name string) (Record, error) {
	if err := CheckName(name); err != nil {
		return Record{}, err
	}
	text, err := readFile(filepath.Join(p.volumeDir(name), recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(p.volumeDir(name)); err == nil {
			return Record{}, fmt.Errorf("the record of volume %s is %w: %s is missing", name, ErrCorrupt, recordFile)
		}
		return Record{}, fmt.Errorf("volume %s %w in pool %s", name, ErrNotFound, p.dir)
	}
	if err == nil {
		err = checkDirectories(p.dir, filepath.Join(p.dir, volumesDir), p.volumeDir(name))
	}
	if err != nil {
		return Record{}, fmt.Errorf("the record of volume %s: %w", name, err)
	}
	return parseRecord(name, text)
}

func (p *Pool) write(record Record) error {
	return writeRecord(p.volumeDir(record.Name), record)
}

// hold locks a volume and reads its record; the caller releases the lock.
func (p *Pool) hold(ctx context.Context, name string) (Record, *lock, error) {
	if err := CheckName(name); err != nil {
		return Record{}, nil, err
	}
	l, err := awaitLock(ctx, p.volumeDir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil, fmt.Errorf("volume %s %w in pool %s", name, ErrNotFound, p.dir)
	}
	if err != nil {
		return Record{}, nil, err
	}
	record, err := p.read(name)
	if err != nil {
		l.release()
		return Record{}, nil, err
	}
	return record, l, nil
}

// disk is the disk under the pool; not every file system has one.
func (p *Pool) disk() (blockdev.Disk, error) { return blockdev.Lookup(p.dir) }

// tree is the hierarchy of cgroups that carries I/O.
func tree() (*cgroup.Tree, error) { return cgroup.Find() }

// newID gives 16 random bytes in the form of a UUID, version 4.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// noSpace gives the kernel's words for it the package's name.
func noSpace(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
