package volume

import "github.com/daybook-project/daybook/volume/records"

// The records, which the pool keeps. The package records describes their fields.
type (
	// Record is the record of a volume.
	Record = records.Volume
	// Attachment describes the changes to the host. It is recorded before the first
	// of its steps.
	Attachment = records.Attachment
	// AttachState is the progress of an attachment.
	AttachState = records.AttachState
	// Persistence has the options for attaching at each boot.
	Persistence = records.Persistence
	// SnapshotRecord is the record of a snapshot.
	SnapshotRecord = records.Snapshot
	// Provision says when a volume gets its blocks.
	Provision = records.Provision
	// FileSystem is the type of a volume's file system.
	FileSystem = records.FileSystem
	// Method says how the blocks of a snapshot or clone were made.
	Method = records.Method
)

// The file systems.
const (
	Ext4 = records.Ext4
	// JFS has its journal in memory.
	JFS = records.JFS
)

// The provisions.
const (
	// Thin images are sparse: blocks are allocated at the first write.
	Thin = records.Thin
	// Full images are written once at creation. Later writes allocate no blocks
	// in the pool, and so add nothing to the pool's journal.
	Full = records.Full
	// OnDevice volumes have no image, and no loop device: their file system
	// is on a block device of the host.
	OnDevice = records.OnDevice
)

// The states of an attachment.
const (
	Attaching = records.Attaching
	Attached  = records.Attached
	Detaching = records.Detaching
)

// The methods.
const (
	// Reflink: the copy shares its blocks until one of the two is written.
	Reflink = records.Reflink
	// Copied: read and written, except for zeros.
	Copied = records.Copied
	// LVMSnapshot: LVM copies a block when it is written.
	LVMSnapshot = records.LVMSnapshot
)

// Bounds of names, sizes and weights.
const (
	MaxNameBytes = records.MaxNameBytes
	MinSizeBytes = records.MinSizeBytes
	MaxSizeBytes = records.MaxSizeBytes
	MinWeight    = records.MinWeight
	MaxWeight    = records.MaxWeight
)

// CheckName checks the name of a volume or snapshot: 1 to
// MaxNameBytes of a-z, A-Z, 0-9, "_", "." and "-", beginning with a letter or
// digit, as Docker's. The error wraps ErrInvalid.
func CheckName(name string) error { return records.CheckName(name) }

// CheckSize checks a volume's size in bytes. The error wraps
// ErrInvalid.
func CheckSize(bytes uint64) error { return records.CheckSize(bytes) }

// CheckWeight checks a weight; 0 is none. The error wraps
// ErrInvalid.
func CheckWeight(weight uint64) error { return records.CheckWeight(weight) }
