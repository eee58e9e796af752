package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/operation"
	"github.com/daybook-project/daybook/volume/placement"
)

// PoolOptions are the choices of [Open].
type PoolOptions struct {
	// Create makes the pool, and the directory, if they are missing.
	Create bool
	// QuotaBytes limits the sum of the sizes of volumes and snapshots in a pool that
	// Create makes; 0 is no limit. See [Pool.SetQuota].
	QuotaBytes uint64
	// Uncorrected finds the weights of cgroups apart from the corrections of another process;
	// nil: no process corrects weights.
	Uncorrected placement.Uncorrected
	// Log receives messages; nil discards them.
	Log *slog.Logger
}

// Pool is a directory of volumes. It holds nothing open, and several
// goroutines and processes may use the same directory.
type Pool struct {
	dir         string
	uncorrected placement.Uncorrected
	log         *slog.Logger
	// engine runs the steps of operations.
	engine operation.Engine
	// files are the files of the pool's directory.
	files store.Pool
}

// Open opens the pool in a directory. Errors wrap ErrNotFound if there is none
// (and Create is not set), ErrUnsupported if the file system of the directory is not
// suitable.
func Open(ctx context.Context, dir string, options PoolOptions) (_ *Pool, err error) {
	defer func() { err = cause.Public(err) }()
	p := &Pool{uncorrected: options.Uncorrected, log: options.Log}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	var once sync.Once
	p.files.Stranger = func(pid int) {
		once.Do(func() {
			p.log.Warn("another user's process has locked the pool's directory; Daybook continues without that lock, which earlier versions used", "directory", p.dir, "pid", pid)
		})
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if options.Create {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			// Refused before the directory is made.
			if err := store.CheckFileSystem(store.NearestDirectory(dir)); err != nil {
				return nil, err
			}
		}
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, fmt.Errorf("cannot make the pool: %w", err)
		}
	}
	// Resolved, because the kernel prints resolved paths of loop devices' files.
	p.dir, err = filepath.EvalSymlinks(dir)
	p.files.Dir = p.dir
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("pool %s %w", dir, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	_, err = p.files.ReadPool()
	if errors.Is(err, ErrNotFound) && options.Create {
		return p, p.files.Format(ctx, options.QuotaBytes)
	}
	return p, err
}

// Dir is the pool's directory, absolute and without symbolic links.
func (p *Pool) Dir() string { return p.dir }

// SetQuota limits the sum of the sizes of volumes and snapshots; 0 is no limit. A quota
// below the present sum refuses new ones.
func (p *Pool) SetQuota(ctx context.Context, bytes uint64) (err error) {
	defer func() { err = cause.Public(err) }()
	all, err := p.files.Lock(ctx)
	if err != nil {
		return err
	}
	defer all.Release()
	record, err := p.files.ReadPool()
	if err != nil {
		return err
	}
	record.QuotaBytes = bytes
	return p.files.WritePool(record)
}

// Progress reports the progress of a long operation, in bytes; it may be nil.
type Progress = imagefile.Progress

// Usage says how full a pool is, in bytes.
type Usage struct {
	// QuotaBytes is 0 without a limit.
	QuotaBytes uint64 `json:"quota_bytes"`
	// PromisedBytes is the sum of the sizes, AllocatedBytes the present size of
	// their images in the pool.
	PromisedBytes  uint64 `json:"promised_bytes"`
	AllocatedBytes uint64 `json:"allocated_bytes"`
	// FreeBytes is what the pool's file system has left.
	FreeBytes uint64 `json:"free_bytes"`
	SizeBytes uint64 `json:"size_bytes"`
}

// Usage reports how full the pool is.
func (p *Pool) Usage() (_ Usage, err error) {
	defer func() { err = cause.Public(err) }()
	record, err := p.files.ReadPool()
	if err != nil {
		return Usage{}, err
	}
	usage := Usage{QuotaBytes: record.QuotaBytes}
	for _, st := range p.files.Images() {
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

// checkQuota refuses so many more bytes if they exceed the quota; the pool is locked.
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

// disk returns the disk under the pool, or under the volume's own device or logical
// volume. Not every file system has one.
func (p *Pool) disk(record Record) (blockdev.Disk, error) {
	if !record.InPool() {
		return blockdev.Lookup(p.blocks(record).Node())
	}
	return blockdev.Lookup(p.dir)
}
