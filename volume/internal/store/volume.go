package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/records"
)

// Read reads a volume's record.
func (p Pool) Read(name string) (records.Volume, error) {
	if err := records.CheckName(name); err != nil {
		return records.Volume{}, err
	}
	text, err := ReadFile(filepath.Join(p.VolumeDir(name), RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(p.VolumeDir(name)); err == nil {
			return records.Volume{}, fmt.Errorf("the record of volume %s is %w: %s is missing", name, cause.ErrCorrupt, RecordFile)
		}
		return records.Volume{}, fmt.Errorf("volume %s %w in pool %s", name, cause.ErrNotFound, p.Dir)
	}
	if err == nil {
		err = CheckDirectories(p.Dir, filepath.Join(p.Dir, VolumesDir), p.VolumeDir(name))
	}
	if err != nil {
		return records.Volume{}, fmt.Errorf("the record of volume %s: %w", name, err)
	}
	return records.ParseVolume(name, text)
}

// Write replaces a volume's record.
func (p Pool) Write(record records.Volume) error {
	return WriteVolume(p.VolumeDir(record.Name), record)
}

// WriteVolume writes the record of the volume or work in a directory.
func WriteVolume(directory string, record records.Volume) error {
	text, err := record.Encode()
	if err != nil {
		return err
	}
	return ReplaceText(filepath.Join(directory, RecordFile), append(text, '\n'))
}

// Hold locks a volume and reads its record; the caller releases the lock.
func (p Pool) Hold(ctx context.Context, name string) (records.Volume, *Lock, error) {
	if err := records.CheckName(name); err != nil {
		return records.Volume{}, nil, err
	}
	l, err := AwaitLock(ctx, p.VolumeDir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return records.Volume{}, nil, fmt.Errorf("volume %s %w in pool %s", name, cause.ErrNotFound, p.Dir)
	}
	if err != nil {
		return records.Volume{}, nil, err
	}
	record, err := p.Read(name)
	if err != nil {
		l.Release()
		return records.Volume{}, nil, err
	}
	return record, l, nil
}

// ReadSnapshot reads a snapshot's record.
func (p Pool) ReadSnapshot(name, snapshot string) (records.Snapshot, error) {
	if err := records.CheckName(snapshot); err != nil {
		return records.Snapshot{}, err
	}
	text, err := ReadFile(filepath.Join(p.SnapshotDir(name, snapshot), SnapshotFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(p.SnapshotDir(name, snapshot)); err != nil {
			return records.Snapshot{}, fmt.Errorf("snapshot %s of volume %s %w", snapshot, name, cause.ErrNotFound)
		}
		return records.Snapshot{}, fmt.Errorf("snapshot %s of volume %s is %w: %s is missing", snapshot, name, cause.ErrCorrupt, SnapshotFile)
	}
	if err == nil {
		err = CheckDirectories(p.VolumeDir(name), filepath.Dir(p.SnapshotDir(name, snapshot)), p.SnapshotDir(name, snapshot))
	}
	if err != nil {
		return records.Snapshot{}, err
	}
	record, err := records.ParseSnapshot(snapshot, text)
	if err != nil {
		return records.Snapshot{}, cause.Unreadable(fmt.Sprintf("the record of snapshot %s of volume %s", snapshot, name), err)
	}
	return record, nil
}

// ReadVolumeIn reads the record of the volume in a directory, or of the one that is made or
// deleted there, whatever its name.
func ReadVolumeIn(directory string) (records.Volume, error) {
	text, err := ReadFile(filepath.Join(directory, RecordFile))
	if err != nil {
		return records.Volume{}, err
	}
	record, err := records.DecodeVolume(text)
	if err != nil {
		return records.Volume{}, cause.Unreadable("the record in "+directory, err)
	}
	return record, nil
}

// ReadSnapshotIn reads the record of the snapshot that is made or deleted in a
// directory, whatever its name.
func ReadSnapshotIn(directory string) (records.Snapshot, error) {
	text, err := ReadFile(filepath.Join(directory, SnapshotFile))
	if err != nil {
		return records.Snapshot{}, err
	}
	record, err := records.DecodeSnapshot(text)
	if err != nil {
		return records.Snapshot{}, cause.Unreadable("the record in "+directory, err)
	}
	return record, nil
}

// SnapshotsIn reads the records of the snapshots of the volume in a directory. unread are
// the directories of unreadable ones, which the error names.
func SnapshotsIn(directory string) (all []records.Snapshot, unread []string, err error) {
	entries, err := os.ReadDir(filepath.Join(directory, SnapshotsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	errs := []error{err}
	for _, entry := range entries {
		path := filepath.Join(directory, SnapshotsDir, entry.Name())
		snapshot, err := ReadSnapshotIn(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("the record in %s is %w: %s is missing", path, cause.ErrCorrupt, SnapshotFile)
		}
		if err != nil {
			errs, unread = append(errs, err), append(unread, path)
			continue
		}
		all = append(all, snapshot)
	}
	return all, unread, errors.Join(errs...)
}
