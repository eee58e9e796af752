package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/records"
)

// PoolRecord is the record of a pool.
type PoolRecord struct {
	Format     int    `json:"format"`
	ID         string `json:"id"`
	QuotaBytes uint64 `json:"quota_bytes"`

	unknown versioned.Unknown
}

// CheckFileSystem refuses file systems that do not outlive the host or cannot hold images.
func CheckFileSystem(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("pool %s: %w", dir, err)
	}
	switch int64(st.Type) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return fmt.Errorf("pool %s is in memory (tmpfs), where volumes are lost at the end of the host: %w; choose a directory on a disk", dir, cause.ErrUnsupported)
	case unix.OVERLAYFS_SUPER_MAGIC:
		return fmt.Errorf("pool %s is on an overlay: %w; choose a directory on a disk's own file system", dir, cause.ErrUnsupported)
	}
	return nil
}

// NearestDirectory is the directory, or its nearest parent that exists.
func NearestDirectory(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == "/" {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// ReadPool reads the pool's record.
func (p Pool) ReadPool() (record PoolRecord, err error) {
	text, err := ReadFile(filepath.Join(p.Dir, PoolFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return record, fmt.Errorf("pool %s %w: it has no %s", p.Dir, cause.ErrNotFound, PoolFile)
	}
	if err == nil {
		err = CheckDirectories(p.Dir, filepath.Join(p.Dir, VolumesDir), filepath.Join(p.Dir, WorkDir))
	}
	if err != nil {
		return record, fmt.Errorf("pool %s: %w", p.Dir, err)
	}
	err = versioned.CheckFormat(text, "format", PoolFormat)
	if err == nil {
		record.unknown, err = versioned.Decode(text, &record)
	}
	if err == nil && record.Format != PoolFormat {
		err = fmt.Errorf("format %d", record.Format)
	}
	if err != nil {
		return record, cause.Unreadable(fmt.Sprintf("%s of pool %s", PoolFile, p.Dir), err)
	}
	return record, nil
}

// WritePool replaces the pool's record.
func (p Pool) WritePool(record PoolRecord) error {
	text, err := versioned.Encode(record, record.unknown)
	if err != nil {
		return err
	}
	return ReplaceText(filepath.Join(p.Dir, PoolFile), append(text, '\n'))
}

// Format makes the pool's directories; its record comes last.
func (p Pool) Format(ctx context.Context, quota uint64) error {
	if err := errors.Join(CheckFileSystem(p.Dir), CheckDirectories(p.Dir)); err != nil {
		return err
	}
	all, err := p.Lock(ctx) // it makes the work directory
	if err != nil {
		return fmt.Errorf("cannot make the pool: %w", err)
	}
	defer all.Release()
	if _, err := p.ReadPool(); !errors.Is(err, cause.ErrNotFound) {
		return err // another process was faster
	}
	if err := os.MkdirAll(filepath.Join(p.Dir, VolumesDir), 0o711); err != nil {
		return fmt.Errorf("cannot make the pool: %w", err)
	}
	return p.WritePool(PoolRecord{Format: PoolFormat, ID: records.NewID(), QuotaBytes: quota})
}
