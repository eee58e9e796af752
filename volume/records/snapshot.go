package records

import (
	"fmt"
	"time"

	"github.com/daybook-project/daybook/internal/versioned"
)

// Method is how an image was copied.
type Method string

// The methods.
const (
	// Reflink: the copy shares its blocks until one of the two is written.
	// XFS and btrfs can.
	Reflink Method = "reflink"
	// Copied: read and written, but for what is zero.
	Copied Method = "copy"
)

// Snapshot is what is written down of a snapshot.
type Snapshot struct {
	Format int    `json:"format"`
	Name   string `json:"name"`
	// ID is the snapshot's own, VolumeID the volume's.
	ID        string    `json:"id"`
	VolumeID  string    `json:"volume_id"`
	Created   time.Time `json:"created"`
	SizeBytes uint64    `json:"size_bytes"`
	Method    Method    `json:"method"`
	// FrozenSeconds is how long writers had to wait at most; 0 if the
	// volume was not attached.
	FrozenSeconds float64 `json:"frozen_seconds"`
}

// SnapshotFormat is that of a snapshot's record.
const SnapshotFormat = 1

// ParseSnapshot reads the record of a snapshot, which may have been cut off or
// written by anybody.
func ParseSnapshot(name string, text []byte) (record Snapshot, err error) {
	if err := versioned.CheckFormat(text, "format", SnapshotFormat); err != nil {
		return record, err
	}
	if _, err := versioned.Decode(text, &record); err != nil { // never written again
		return record, err
	}
	switch {
	case record.Format != SnapshotFormat:
		return record, fmt.Errorf("format %d, this Daybook knows %d", record.Format, SnapshotFormat)
	case record.Name != name:
		return record, fmt.Errorf("it is of %q", record.Name)
	case record.Method != Reflink && record.Method != Copied:
		return record, fmt.Errorf("method %q", record.Method)
	}
	return record, CheckSize(record.SizeBytes)
}
