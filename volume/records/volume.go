// Package records has what is written down of volumes and their snapshots, as pure
// values: which records there can be, how they are read and written, and what a
// name, a size or a weight may be. Files and locks are the package store's.
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

// Provision is how an image gets its blocks.
type Provision string

// The two provisions.
const (
	// Thin images are sparse: the pool gives blocks at the first write.
	Thin Provision = "thin"
	// Full images are written once at creation: no write of the volume
	// allocates in the pool, so that the pool's journal has no part in it.
	Full Provision = "full"
	// OnDevice volumes have no image, and no loop device: their file system
	// is on a block device of the host.
	OnDevice Provision = "device"
)

// The formats of a volume's record. One with a logical volume has a format of its
// own, for an earlier Daybook would not know what to do with it.
const (
	Format    = 1
	FormatLVM = 2
)

// Volume is what is written down of a volume.
type Volume struct {
	Format    int       `json:"format"`
	Name      string    `json:"name"`
	ID        string    `json:"id"` // of the file system, too
	Created   time.Time `json:"created"`
	SizeBytes uint64    `json:"size_bytes"`
	Provision Provision `json:"provision"`
	// Device is the node of the block device of an OnDevice volume.
	Device string `json:"device,omitempty"`
	// LVM is the logical volume that Daybook has created for the volume; nil if it
	// has an image, or a device of the user's.
	LVM *LogicalVolume `json:"lvm,omitempty"`
	// SectorBytes is the loop device's, or device's, logical block size.
	SectorBytes uint32 `json:"sector_bytes"`
	// Weight is the parent cgroup's while attached; 0 leaves it alone.
	Weight uint64            `json:"weight,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// MountOptions are ext4's, such as "data=ordered,commit=30".
	MountOptions string `json:"mount_options,omitempty"`
	NoAtime      bool   `json:"noatime,omitempty"`
	// JournalDevice is the node of an external journal; "" for none.
	JournalDevice string `json:"journal_device,omitempty"`
	// Origin says what a clone or received volume was made from.
	Origin string `json:"origin,omitempty"`
	// Attachment is what was done to the host; nil while detached.
	Attachment *Attachment `json:"attachment,omitempty"`
	// Persist is how it is attached at each start of the host; nil: it is not.
	Persist *Persistence `json:"persist,omitempty"`
	// Frozen is set while a snapshot holds the file system still.
	Frozen bool `json:"frozen,omitempty"`
	// Resize is set while the size changes: to what.
	Resize uint64 `json:"resize_to_bytes,omitempty"`

	// unknown are a newer Daybook's fields, kept when the record is written.
	unknown versioned.Unknown
}

// AttachState says how far an attachment has come.
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
	// BootID names the start of the host at which it was made.
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
	// Placed is where the jbd2 thread is, and what was done to cgroups for it.
	placement.Placed

	unknown versioned.Unknown
}

// MaxBytes bounds a record; one that is longer is not ours.
const MaxBytes = 256 << 10

// ParseVolume reads the record of the volume called name, which may have been
// cut off or written by anybody. The error wraps cause.ErrCorrupt, or cause.ErrUnsupported
// if a newer Daybook has written it.
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

func DecodeVolume(text []byte) (record Volume, err error) {
	if err := versioned.CheckFormat(text, "format", FormatLVM); err != nil {
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

// Encode gives the text of a record, with what a newer Daybook has put there.
func (r Volume) Encode() ([]byte, error) {
	unknown := maps.Clone(r.unknown)
	delete(unknown, "attachment")
	if a := r.Attachment; a != nil && a.unknown != nil {
		if unknown == nil {
			unknown = versioned.Unknown{}
		}
		unknown["attachment"] = a.unknown
	}
	return versioned.Encode(r, unknown)
}

func (r Volume) Check() error {
	if r.Format != Format && r.Format != FormatLVM || (r.Format == FormatLVM) != (r.LVM != nil) {
		return fmt.Errorf("format %d", r.Format)
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

// check keeps out what would lead the undoing astray: all cgroups are on the
// way to where the volume's journal thread belongs.
func (a Attachment) check(name string) error {
	switch a.State {
	case Attaching, Attached, Detaching:
	default:
		return fmt.Errorf("attachment state %q", a.State)
	}
	if !CleanPath(a.Target) || a.Target == "/" {
		return fmt.Errorf("mount point %q", a.Target)
	}
	return a.Placed.Check(name)
}

// checkDevices: an attachment has a loop device, or that of the volume.
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
