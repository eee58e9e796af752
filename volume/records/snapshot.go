package records

import (
	"fmt"
	"time"

	"github.com/daybook-project/daybook/internal/versioned"
)

// Method says how a snapshot was made.
type Method string

// The methods.
const (
	// Reflink: the copy shares its blocks until one of the two is written. XFS and
	// btrfs support it.
	Reflink Method = "reflink"
	// Copied: read and written, except for zeros.
	Copied Method = "copy"
	// LVMSnapshot: LVM copies a block when it is written.
	LVMSnapshot Method = "lvm"
)

// Snapshot is the record of a snapshot.
type Snapshot struct {
	Format int    `json:"format"`
	Name   string `json:"name"`
	// ID is the UUID of the snapshot, VolumeID that of the volume.
	ID        string    `json:"id"`
	VolumeID  string    `json:"volume_id"`
	Created   time.Time `json:"created"`
	SizeBytes uint64    `json:"size_bytes"`
	Method    Method    `json:"method"`
	// FrozenSeconds is how long writers had to wait at most; 0 if the
	// volume was not attached.
	FrozenSeconds float64 `json:"frozen_seconds"`
	// LVM is the logical volume of the snapshot; nil: it is an image.
	LVM *LogicalVolume `json:"lvm,omitempty"`
}

// The formats of a snapshot's record, like those of a volume's.
const (
	SnapshotFormat    = 1
	SnapshotFormatLVM = 2
)

// ParseSnapshot reads the record of the snapshot called name, and checks all of it.
func ParseSnapshot(name string, text []byte) (Snapshot, error) {
	record, err := DecodeSnapshot(text)
	if err == nil && record.Name != name {
		err = fmt.Errorf("it is of %q", record.Name)
	}
	return record, err
}

// DecodeSnapshot is ParseSnapshot for a snapshot of any name.
func DecodeSnapshot(text []byte) (record Snapshot, err error) {
	if err := versioned.CheckFormat(text, "format", SnapshotFormatLVM); err != nil {
		return record, err
	}
	if _, err := versioned.Decode(text, &record); err != nil { // never written again
		return record, err
	}
	switch {
	case record.Format != SnapshotFormat && record.Format != SnapshotFormatLVM || (record.Format == SnapshotFormatLVM) != (record.LVM != nil):
		return record, fmt.Errorf("format %d, this Daybook knows up to %d", record.Format, SnapshotFormatLVM)
	case record.Method != Reflink && record.Method != Copied && record.Method != LVMSnapshot || (record.Method == LVMSnapshot) != (record.LVM != nil):
		return record, fmt.Errorf("method %q", record.Method)
	}
	if record.LVM != nil {
		if err := record.LVM.Check(); err != nil {
			return record, err
		}
	}
	return record, CheckSize(record.SizeBytes)
}
