// Package records has the records of volumes and their snapshots as pure values: their
// fields, how they are encoded, and which names, sizes and weights are valid. The package
// store has files and locks.
package records

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/placement"
)

// Provision says when an image gets its blocks.
type Provision string

// The provisions.
const (
	// Thin images are sparse: blocks are allocated at the first write.
	Thin Provision = "thin"
	// Full images are written once at creation. Later writes allocate no blocks
	// in the pool, and so add nothing to the pool's journal.
	Full Provision = "full"
	// OnDevice volumes have no image, and no loop device: their file system
	// is on a block device of the host.
	OnDevice Provision = "device"
)

// FileSystem is the type of a volume's file system.
type FileSystem string

// The file systems.
const (
	Ext4 FileSystem = "" // in a record: earlier versions know no other
	JFS  FileSystem = "jfs"
)

// The formats of a volume's record. A volume on LVM has a format of its own, and so has
// one whose journal is in memory, or that has JFS, because earlier versions cannot handle
// them.
const (
	Format       = 1
	FormatLVM    = 2
	FormatMemory = 3
	FormatJFS    = 4
)

// SetFormat enters the format that the record needs.
func (r *Volume) SetFormat() { r.Format = r.neededFormat() }

func (r *Volume) neededFormat() int {
	switch {
	case r.FileSystem != Ext4:
		return FormatJFS
	case r.JournalMemory != nil:
		return FormatMemory
	case r.LVM != nil:
		return FormatLVM
	}
	return Format
}

// Volume is the record of a volume.
type Volume struct {
	Format    int       `json:"format"`
	Name      string    `json:"name"`
	ID        string    `json:"id"` // of the file system, too
	Created   time.Time `json:"created"`
	SizeBytes uint64    `json:"size_bytes"`
	Provision Provision `json:"provision"`
	// FileSystem is Ext4 or JFS. A JFS has its journal in memory.
	FileSystem FileSystem `json:"file_system,omitempty"`
	// Device is the node of the block device of an OnDevice volume.
	Device string `json:"device,omitempty"`
	// LVM is the logical volume that Daybook has created for the volume; nil if it
	// has an image, or is on a device of the user.
	LVM *LogicalVolume `json:"lvm,omitempty"`
	// SectorBytes is the logical block size of the loop device or device.
	SectorBytes uint32 `json:"sector_bytes"`
	// Weight is the parent cgroup's while attached; 0 does not change it.
	Weight uint64            `json:"weight,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// MountOptions are ext4's, such as "data=ordered,commit=30".
	MountOptions string `json:"mount_options,omitempty"`
	NoAtime      bool   `json:"noatime,omitempty"`
	// JournalDevice is the node of an external journal; "" for none.
	JournalDevice string `json:"journal_device,omitempty"`
	// JournalMemory has the journal if it is in persistent memory; nil: it is on a disk.
	JournalMemory *MemoryJournal `json:"journal_memory,omitempty"`
	// Origin names the source of a clone or received volume.
	Origin string `json:"origin,omitempty"`
	// Attachment describes the changes to the host; nil while detached.
	Attachment *Attachment `json:"attachment,omitempty"`
	// Persist has the options for attaching at each boot; nil: it is not
	// attached then.
	Persist *Persistence `json:"persist,omitempty"`
	// Frozen is set while the file system is frozen for a copy.
	Frozen bool `json:"frozen,omitempty"`
	// Resize is the new size while the size changes; else 0.
	Resize uint64 `json:"resize_to_bytes,omitempty"`

	// unknown are fields of a newer Daybook, which are kept when the record is written.
	unknown versioned.Unknown
}

// AttachState is the progress of an attachment.
type AttachState string

// The states of an attachment.
const (
	Attaching AttachState = "attaching"
	Attached  AttachState = "attached"
	Detaching AttachState = "detaching"
)

// Attachment is recorded before the first of its steps.
type Attachment struct {
	State AttachState `json:"state"`
	// BootID identifies the boot at which it was made.
	BootID string `json:"boot_id"`
	// Target is the mount point; MadeTarget: its directory is ours.
	Target     string `json:"target"`
	MadeTarget bool   `json:"made_target,omitempty"`
	// LoopDevice is the name of the device, once it is known.
	LoopDevice string `json:"loop_device,omitempty"`
	// DeviceNumber is "major:minor" of the device of a volume without an image.
	DeviceNumber string `json:"device_number,omitempty"`
	AllowCache   bool   `json:"allow_cache,omitempty"`
	ReadOnly     bool   `json:"read_only,omitempty"`
	// Dev and Suid: it is mounted without nodev and nosuid.
	Dev  bool `json:"dev,omitempty"`
	Suid bool `json:"suid,omitempty"`
	// EarlierWeight is the volume's Weight from before it was attached with another one,
	// until the state is Attached. A rollback restores it. Nil: the weight stays.
	EarlierWeight *uint64 `json:"earlier_weight,omitempty"`
	// Placed has the place of the jbd2 thread, and the changes to cgroups for it.
	placement.Placed

	unknown versioned.Unknown
}

// MaxBytes limits the length of a record.
const MaxBytes = 256 << 10

// ParseVolume reads the record of the volume called name, and checks all of it. The error
// wraps cause.ErrCorrupt, or cause.ErrUnsupported if a newer Daybook has written it.
func ParseVolume(name string, text []byte) (Volume, error) {
	record, err := DecodeVolume(text)
	if err == nil && record.Name != name {
		err = fmt.Errorf("it is of %q", record.Name)
	}
	if err != nil {
		return Volume{}, cause.Unreadable("the record of volume "+name, err)
	}
	return record, nil
}

// DecodeVolume is ParseVolume for a volume of any name.
func DecodeVolume(text []byte) (record Volume, err error) {
	if err := versioned.CheckFormat(text, "format", FormatJFS); err != nil {
		return record, err
	}
	if record.unknown, err = versioned.Decode(text, &record); err != nil {
		return record, err
	}
	if a := record.Attachment; a != nil {
		// They end with the attachment.
		a.unknown, _ = record.unknown["attachment"].(versioned.Unknown)
	}
	return record, record.Check()
}

// Encode returns the text of a record, with the unknown fields of a newer Daybook. It refuses a
// record that could not be read again; the error wraps cause.ErrInvalid.
func (r Volume) Encode() ([]byte, error) {
	unknown := maps.Clone(r.unknown)
	delete(unknown, "attachment")
	if a := r.Attachment; a != nil && a.unknown != nil {
		if unknown == nil {
			unknown = versioned.Unknown{}
		}
		unknown["attachment"] = a.unknown
	}
	text, err := versioned.Encode(r, unknown)
	if err == nil && len(text) >= MaxBytes { // a newline follows
		err = fmt.Errorf("%w: the record of volume %s would have %d bytes, more than %d: use fewer or shorter labels, or shorter paths of cgroups",
			cause.ErrInvalid, r.Name, len(text), MaxBytes)
	}
	return text, err
}

// InPool says whether the blocks are an image in the pool, and count in its quota.
func (r Volume) InPool() bool { return r.Device == "" && r.LVM == nil }

// Check refuses records that no operation writes.
func (r Volume) Check() error {
	if r.Format != r.neededFormat() {
		return fmt.Errorf("format %d", r.Format)
	}
	if m := r.JournalMemory; m != nil {
		if err := m.check(); err != nil {
			return err
		}
		if r.JournalDevice != "" {
			return fmt.Errorf("a journal in memory and one on %s", r.JournalDevice)
		}
	}
	if r.FileSystem != Ext4 && r.FileSystem != JFS {
		return fmt.Errorf("file system %q", r.FileSystem)
	}
	if m := r.JournalMemory; r.FileSystem == JFS && (m == nil || m.Moving != "" || r.Resize != 0) {
		return errors.New("a JFS whose journal is not in memory, or that is resized")
	}
	if r.LVM != nil {
		if err := r.LVM.Check(); err != nil {
			return err
		}
	}
	if err := errors.Join(CheckName(r.Name), CheckSize(r.SizeBytes), CheckWeight(r.Weight), CheckLabels(r.Labels)); err != nil {
		return err
	}
	switch r.Provision {
	case Thin, Full, OnDevice:
	default:
		return fmt.Errorf("provision %q", r.Provision)
	}
	if (r.Provision == OnDevice) != (r.Device != "") || r.Device != "" && !CleanPath(r.Device) {
		return fmt.Errorf("device %q with provision %q", r.Device, r.Provision)
	}
	switch r.SectorBytes {
	case 512, 1024, 2048, 4096:
	default:
		return fmt.Errorf("sectors of %d bytes", r.SectorBytes)
	}
	if r.Persist != nil {
		if err := r.Persist.check(r.Name); err != nil {
			return err
		}
	}
	if r.Attachment == nil {
		return nil
	}
	if err := r.Attachment.checkDevices(r.Device != "" || r.LVM != nil); err != nil {
		return err
	}
	return r.Attachment.check(r.Name)
}

// check refuses values with which an undo would change anything else: all cgroups must be
// ancestors of the volume's journal cgroup.
func (a Attachment) check(name string) error {
	switch a.State {
	case Attaching, Attached, Detaching:
	default:
		return fmt.Errorf("attachment state %q", a.State)
	}
	if !CleanPath(a.Target) || a.Target == "/" {
		return fmt.Errorf("mount point %q", a.Target)
	}
	if a.EarlierWeight != nil {
		if err := CheckWeight(*a.EarlierWeight); err != nil {
			return err
		}
	}
	return a.Placed.Check(name)
}

// checkDevices checks that an attachment has a loop device, or the volume's own.
func (a Attachment) checkDevices(onDevice bool) error {
	if number, isLoop := strings.CutPrefix(a.LoopDevice, "loop"); a.LoopDevice != "" {
		if _, err := strconv.ParseUint(number, 10, 32); err != nil || !isLoop || onDevice {
			return fmt.Errorf("loop device %q", a.LoopDevice)
		}
	}
	if a.DeviceNumber != "" {
		if _, err := blockdev.ParseDev(a.DeviceNumber); err != nil || !onDevice {
			return fmt.Errorf("device number %q", a.DeviceNumber)
		}
	}
	return nil
}
