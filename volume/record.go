package volume

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/versioned"
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

// Placement is where a volume's jbd2 thread is kept while it is attached.
type Placement string

// The placements.
const (
	// PlaceParent: in a cgroup of its own, below the parent cgroup that has
	// the weight and, beside it, the container's cgroup.
	PlaceParent Placement = "parent"
	// PlaceContainer: in the container's own cgroup, out of which a
	// [Keeper] takes it when the container's last process has ended.
	PlaceContainer Placement = "container"
	// PlaceNone: where the kernel starts it, in the root cgroup.
	PlaceNone Placement = "none"
)

const recordFormat = 1

// Record is what is written down of a volume.
type Record struct {
	Format    int       `json:"format"`
	Name      string    `json:"name"`
	ID        string    `json:"id"` // of the file system, too
	Created   time.Time `json:"created"`
	SizeBytes uint64    `json:"size_bytes"`
	Provision Provision `json:"provision"`
	// Device is the node of the block device of an OnDevice volume.
	Device string `json:"device,omitempty"`
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
	// BootID tells whether the host was started anew since.
	BootID string `json:"boot_id"`
	// Target is the mount point; MadeTarget: its directory is ours.
	Target     string `json:"target"`
	MadeTarget bool   `json:"made_target,omitempty"`
	// LoopDevice is the name of the device, once it is known.
	LoopDevice string `json:"loop_device,omitempty"`
	// DeviceNumber is "major:minor" of an OnDevice volume's.
	DeviceNumber string `json:"device_number,omitempty"`
	AllowCache   bool   `json:"allow_cache,omitempty"`
	ReadOnly     bool   `json:"read_only,omitempty"`
	// Dev and Suid: it is mounted without nodev and nosuid.
	Dev       bool      `json:"dev,omitempty"`
	Suid      bool      `json:"suid,omitempty"`
	Placement Placement `json:"placement"`
	// Cgroup is the parent, or the container's own; Journal where the
	// jbd2 thread is.
	Cgroup  string `json:"cgroup,omitempty"`
	Journal string `json:"journal_cgroup,omitempty"`
	// MadeCgroups are ours, parents first.
	MadeCgroups []string `json:"made_cgroups,omitempty"`
	// EnabledIO are the cgroups (v2) below which we enabled the controller.
	EnabledIO []string `json:"enabled_io,omitempty"`
	// Weight is what the parent cgroup had before; nil if it was not set.
	WeightBefore *WeightBefore `json:"weight_before,omitempty"`

	unknown versioned.Unknown
}

// WeightBefore is how to put a weight back that was there before.
type WeightBefore struct {
	File string `json:"file"`
	Disk string `json:"disk"` // "major:minor"
	// Scheduler was the disk's.
	Scheduler string `json:"scheduler"`
	Default   uint64 `json:"default"`
	Device    uint64 `json:"device"`
}

// maxRecordBytes bounds a record; one that is longer is not ours.
const maxRecordBytes = 256 << 10

// parseRecord reads the record of the volume called name, which may have been
// cut off or written by anybody. The error wraps ErrCorrupt, or ErrUnsupported
// if a newer Daybook has written it.
func parseRecord(name string, text []byte) (Record, error) {
	record, err := decodeRecord(text)
	if err == nil && record.Name != name {
		err = fmt.Errorf("it is of %q", record.Name)
	}
	if err != nil {
		return Record{}, unreadable("the record of volume "+name, err)
	}
	return record, nil
}

func decodeRecord(text []byte) (record Record, err error) {
	if err := versioned.CheckFormat(text, "format", recordFormat); err != nil {
		return record, err
	}
	if record.unknown, err = versioned.Decode(text, &record); err != nil {
		return record, err
	}
	if a := record.Attachment; a != nil {
		// They end with the attachment.
		a.unknown, _ = record.unknown["attachment"].(versioned.Unknown)
	}
	return record, record.check()
}

// encode gives the text of a record, with what a newer Daybook has put there.
func (r Record) encode() ([]byte, error) {
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

// writeRecord makes it the record of the volume, or of the work, in a directory.
func writeRecord(directory string, record Record) error {
	text, err := record.encode()
	if err != nil {
		return err
	}
	return replaceText(filepath.Join(directory, recordFile), append(text, '\n'))
}

func (r Record) check() error {
	if r.Format != recordFormat {
		return fmt.Errorf("format %d", r.Format)
	}
	if err := errors.Join(CheckName(r.Name), CheckSize(r.SizeBytes), CheckWeight(r.Weight), checkLabels(r.Labels)); err != nil {
		return err
	}
	switch r.Provision {
	case Thin, Full, OnDevice:
	default:
		return fmt.Errorf("provision %q", r.Provision)
	}
	if (r.Provision == OnDevice) != (r.Device != "") || r.Device != "" && !cleanPath(r.Device) {
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
	if err := r.Attachment.checkDevices(r.Device); err != nil {
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
	if !cleanPath(a.Target) || a.Target == "/" {
		return fmt.Errorf("mount point %q", a.Target)
	}
	if a.Placement == PlaceNone {
		if a.Cgroup != "" || a.Journal != "" || len(a.MadeCgroups)+len(a.EnabledIO) > 0 || a.WeightBefore != nil {
			return fmt.Errorf("cgroups with placement %s", a.Placement)
		}
		return nil
	}
	if !cleanPath(a.Cgroup) || a.Cgroup == "/" {
		return fmt.Errorf("cgroup %q", a.Cgroup)
	}
	switch a.Placement {
	case PlaceContainer:
		if a.Journal != a.Cgroup || len(a.MadeCgroups)+len(a.EnabledIO) > 0 || a.WeightBefore != nil {
			return fmt.Errorf("cgroups of its own, or journal cgroup %q, with placement %s", a.Journal, a.Placement)
		}
		return nil
	case PlaceParent:
	default:
		return fmt.Errorf("placement %q", a.Placement)
	}
	if a.Journal != journalCgroup(a.Cgroup, name) {
		return fmt.Errorf("journal cgroup %q of %q", a.Journal, a.Cgroup)
	}
	way := ancestry(a.Journal)
	next := 0
	for _, cgroup := range a.MadeCgroups {
		at := slices.Index(way[next:], cgroup)
		if at < 0 {
			return fmt.Errorf("cgroup %q, made for %q", cgroup, a.Journal)
		}
		next += at + 1
	}
	for _, cgroup := range a.EnabledIO {
		if cgroup != "/" && !slices.Contains(way, cgroup) {
			return fmt.Errorf("controller of cgroup %q, enabled for %q", cgroup, a.Journal)
		}
	}
	if a.WeightBefore != nil && slices.Contains(a.MadeCgroups, a.Cgroup) {
		return fmt.Errorf("weight before of cgroup %q, which it made", a.Cgroup)
	}
	return nil
}

// checkDevices: an attachment has a loop device, or that of the volume.
func (a Attachment) checkDevices(device string) error {
	if number, isLoop := strings.CutPrefix(a.LoopDevice, "loop"); a.LoopDevice != "" {
		if _, err := strconv.ParseUint(number, 10, 32); err != nil || !isLoop || device != "" {
			return fmt.Errorf("loop device %q", a.LoopDevice)
		}
	}
	if a.DeviceNumber != "" {
		if _, err := blockdev.ParseDev(a.DeviceNumber); err != nil || device == "" {
			return fmt.Errorf("device number %q", a.DeviceNumber)
		}
	}
	return nil
}

func cleanPath(path string) bool {
	return filepath.IsAbs(path) && filepath.Clean(path) == path
}

// Bounds of labels, which are the user's.
const (
	maxLabels     = 64
	maxLabelBytes = 1024
)

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("%w labels: %d, at most %d", ErrInvalid, len(labels), maxLabels)
	}
	for key, value := range labels {
		if key == "" || len(key)+len(value) > maxLabelBytes {
			return fmt.Errorf("%w label %.20q: want a key, and at most %d bytes in all", ErrInvalid, key, maxLabelBytes)
		}
	}
	return nil
}
