package disksim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/daybook-project/daybook/internal/versioned"
)

// Record is the stored record of a disk, which List returns.
type Record struct {
	Name       string     `json:"name"`
	SizeBytes  uint64     `json:"size_bytes"`
	Parameters Parameters `json:"parameters"`
	// Backing is the file on the host, "" for memory.
	Backing string `json:"backing"`
	// MountPoint is that of the FUSE file system.
	MountPoint string `json:"mount_point"`
	// OwnerBound means that the disk ends with the process OwnerPID.
	OwnerBound bool `json:"owner_bound"`
	OwnerPID   int  `json:"owner_pid"`
	// ServerPID and ServerStart (clock ticks since boot, field 22 of
	// /proc/PID/stat) identify the serving process; 0 before it runs.
	ServerPID   int    `json:"server_pid"`
	ServerStart uint64 `json:"server_start_ticks"`
	// Device is the loop device's name, "" before it is attached.
	Device string `json:"device"`
	// Dev is its number, "7:3".
	Dev string `json:"dev"`
	// Scheduler is that of the device, and PreviousScheduler is restored at the
	// end; "" if it was not changed.
	Scheduler         string `json:"scheduler"`
	PreviousScheduler string `json:"previous_scheduler"`
	// PreviousRotational is queue/rotational of the device before it was attached, which
	// is restored at the end; "" if it is not known.
	PreviousRotational string `json:"previous_rotational,omitempty"`
	// PreviousWriteback is queue/wbt_lat_usec under the scheduler before, which is restored at
	// the end; "" if the scheduler was kept, or the kernel does not have it.
	PreviousWriteback string `json:"previous_writeback,omitempty"`
}

// DevicePath is the disk's node, "" before it is attached.
func (r Record) DevicePath() string {
	if r.Device == "" {
		return ""
	}
	return "/dev/" + r.Device
}

const maxRecordBytes = 64 << 10

// parseRecord parses the record of the disk called name, which may be truncated
// or invalid.
func parseRecord(name string, text []byte) (Record, error) {
	var record Record
	// A record has no format number: a newer one has additional fields.
	err := versioned.DecodeStrict(text, &record)
	if errors.Is(err, versioned.ErrNewer) {
		return Record{}, fmt.Errorf("%w: the record of disk %s was %w", ErrUnsupported, name, err)
	}
	if err != nil {
		return Record{}, fmt.Errorf("record of disk %s: %w", name, err)
	}
	if record.Name != name {
		return Record{}, fmt.Errorf("record of disk %s names %q", name, record.Name)
	}
	err = errors.Join(CheckName(record.Name), CheckSize(record.SizeBytes), record.Parameters.Check())
	if err != nil {
		return Record{}, fmt.Errorf("record of disk %s: %w", name, err)
	}
	return record, nil
}

func (h home) readRecord(name string) (Record, error) {
	file, err := os.Open(h.path(name, recordSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, fmt.Errorf("disk %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return Record{}, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxRecordBytes))
	if err != nil {
		return Record{}, err
	}
	return parseRecord(name, text)
}

// writeRecord replaces the record atomically.
func (h home) writeRecord(record Record) error {
	text, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	temporary := h.path(record.Name, newRecordSuffix)
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot record disk %s: %w", record.Name, err)
	}
	_, err = file.Write(append(text, '\n'))
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(temporary, h.path(record.Name, recordSuffix))
	}
	if err != nil {
		return fmt.Errorf("cannot record disk %s: %w", record.Name, err)
	}
	return nil
}
