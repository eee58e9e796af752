package volume

import "github.com/daybook-project/daybook/volume/records"

// The records, which are kept in the pool. The package records has their fields.
type (
	// Record is what is written down of a volume.
	Record = records.Volume
	// Attachment is what was done to the host; it is recorded before the first of
	// its steps.
	Attachment = records.Attachment
	// AttachState says how far an attachment has come.
	AttachState = records.AttachState
	// Persistence is how a volume is attached at each start of the host.
	Persistence = records.Persistence
	// SnapshotRecord is what is written down of a snapshot.
	SnapshotRecord = records.Snapshot
	// Provision is how a volume gets its blocks.
	Provision = records.Provision
	// Method is how a snapshot's or clone's blocks were made.
	Method = records.Method
)

// The provisions.
const (
	// Thin images are sparse: the pool gives blocks at the first write.
	Thin = records.Thin
	// Full images are written once at creation: no write of the volume
	// allocates in the pool, so that the pool's journal has no part in it.
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
	// Copied: read and written, but for what is zero.
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

// CheckName says what is wrong with a volume's or snapshot's name: 1 to
// MaxNameBytes of a-z, A-Z, 0-9, "_", "." and "-", beginning with a letter or
// digit, as Docker's. The error wraps ErrInvalid.
func CheckName(name string) error { return records.CheckName(name) }

// CheckSize says what is wrong with a volume's size in bytes. The error wraps
// ErrInvalid.
func CheckSize(bytes uint64) error { return records.CheckSize(bytes) }

// CheckWeight says what is wrong with a weight; 0 is none. The error wraps
// ErrInvalid.
func CheckWeight(weight uint64) error { return records.CheckWeight(weight) }
