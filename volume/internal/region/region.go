package region

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/records"
)

// ErrGone is wrapped by the error for a region that is not on this host, or has no
// readable table.
var ErrGone = errors.New("the memory is not there")

// lockPatience is how long a process waits for another that changes the table.
const lockPatience = 10 * time.Second

// device is an opened region. Its table is read and written past the page cache, because
// mounts use the memory directly.
type device struct {
	node string
	file *os.File
}

// open opens a region; with change, it locks the table.
func open(ctx context.Context, node string, change bool) (d device, err error) {
	flags := os.O_RDONLY
	if change {
		flags = os.O_RDWR
	}
	d.node = node
	if d.file, err = imagefile.OpenDirect(node, flags); err != nil {
		return d, fmt.Errorf("%w: %w: %w", cause.ErrCorrupt, ErrGone, err)
	}
	if !change {
		return d, nil
	}
	patient, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	for {
		err := filelock.TryLock(d.file)
		var held *filelock.HeldError
		if !errors.As(err, &held) {
			if err != nil {
				_ = d.file.Close()
			}
			return d, err
		}
		select {
		case <-patient.Done():
			_ = d.file.Close()
			return d, errors.Join(fmt.Errorf("%s is %w: another process has locked it", node, cause.ErrBusy), ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (d device) close() { _ = d.file.Close() }

// read reads the table. The error wraps ErrNoTable if there is none.
func (d device) read() (t Table, err error) {
	var all [copies][]byte
	for i := range all {
		all[i] = chunk.Aligned(copyBytes)
		if _, err := d.file.ReadAt(all[i], int64(i)*copyBytes); err != nil {
			clear(all[i]) // memory that fails: the other copy may be valid
		}
	}
	t, err = newest(all)
	switch {
	case err == nil, errors.Is(err, ErrNoTable):
		return t, err
	case errors.Is(err, versioned.ErrNewer):
		return t, cause.Unreadable("the table of slices of "+d.node, err)
	}
	return t, fmt.Errorf("the table of slices of %s is %w: %w: %w", d.node, cause.ErrCorrupt, ErrGone, err)
}

// readThere is read for a region that must have a table, and with an ID that table.
func (d device) readThere(id string) (Table, error) {
	t, err := d.read()
	if errors.Is(err, ErrNoTable) {
		return t, fmt.Errorf("%w: %w: %s has %w", cause.ErrCorrupt, ErrGone, d.node, ErrNoTable)
	}
	if err == nil && id != "" && t.ID != id {
		return t, fmt.Errorf("%w: %w: %s is another region, %s, want %s", cause.ErrCorrupt, ErrGone, d.node, t.ID, id)
	}
	return t, err
}

// write writes one copy after the other, so that one of them is valid at each moment.
func (d device) write(t Table) error {
	t.generation++
	b, err := t.encode()
	if err != nil {
		return err
	}
	for i := range copies {
		if _, err := d.file.WriteAt(b, int64(i)*copyBytes); err != nil {
			return fmt.Errorf("cannot write the table of slices of %s: %w", d.node, err)
		}
		if err := d.file.Sync(); err != nil {
			return fmt.Errorf("cannot write the table of slices of %s: %w", d.node, err)
		}
	}
	return nil
}

// readOrMake reads the table, and begins one in a region that is empty.
func (d device) readOrMake(ctx context.Context, bytes uint64) (Table, error) {
	t, err := d.read()
	if !errors.Is(err, ErrNoTable) {
		return t, err
	}
	found, err := ext4.Signatures(ctx, d.node)
	if err != nil {
		return t, err
	}
	start := chunk.Aligned(TableBytes)
	if _, err := d.file.ReadAt(start, 0); err != nil {
		return t, fmt.Errorf("cannot read %s: %w", d.node, err)
	}
	if len(found) > 0 || !chunk.IsZero(start) {
		return t, fmt.Errorf("%s is %w: it holds something that is not Daybook's, and a table of slices would overwrite its first MiB; "+
			"if nothing of it is needed, erase that: dd if=/dev/zero of=%s bs=1M count=1 oflag=direct", d.node, cause.ErrBusy, d.node)
	}
	return Table{Format: format, ID: records.NewID(), SizeBytes: bytes, Slices: []Slice{}}, nil
}

// Reserve enters a slice of that size in the table of a region, and returns it with the
// ID of the region. If the slice is there already, it only returns it. The memory of a slice
// is in one piece, if a module is loaded that can check this.
func Reserve(ctx context.Context, node string, want Slice) (s Slice, regionID string, err error) {
	facts, err := Look(node)
	if err != nil {
		return s, "", err
	}
	if want.SizeBytes > facts.Bytes || facts.Bytes-want.SizeBytes < TableBytes {
		return s, "", fmt.Errorf("%w journal region: %s has %d MiB, too few for a journal of %d MiB and 1 MiB for the table of slices", cause.ErrInvalid, node, facts.Bytes>>20, want.SizeBytes>>20)
	}
	d, err := open(ctx, node, true)
	if err != nil {
		return s, "", err
	}
	defer d.close()
	t, err := d.readOrMake(ctx, facts.Bytes)
	if err != nil {
		return s, "", err
	}
	if t.SizeBytes > facts.Bytes {
		return s, "", fmt.Errorf("%s is %w: it has %d bytes, and had %d", node, cause.ErrCorrupt, facts.Bytes, t.SizeBytes)
	}
	t.SizeBytes = facts.Bytes
	if at := t.find(want.ID); at >= 0 {
		return t.Slices[at], t.ID, nil
	}
	if s, err = t.add(want, mappableBy(node, facts.Dev)); err != nil {
		return s, "", fmt.Errorf("%s: %w", node, err)
	}
	return s, t.ID, d.write(t)
}

// Free wipes a slice and removes it from the table of a region; with a region's ID, of
// that region alone. A slice that is not in the table is no error. The error wraps
// cause.ErrBusy if the slice is in use, and ErrGone if the region is gone.
func Free(ctx context.Context, node, regionID, id string) error {
	t, err := List(node, regionID)
	if err != nil {
		return err
	}
	at := t.find(id)
	if at < 0 {
		return nil
	}
	if err := wipe(ctx, node, t.Slices[at]); err != nil {
		return err
	}
	d, err := open(ctx, node, true)
	if err != nil {
		return err
	}
	defer d.close()
	if t, err = d.readThere(regionID); err != nil {
		return err
	}
	if at = t.find(id); at < 0 {
		return nil
	}
	t.Slices = append(t.Slices[:at:at], t.Slices[at+1:]...)
	return d.write(t)
}

// wipe writes zeros over a slice, so that the next user of the memory finds nothing.
func wipe(ctx context.Context, node string, s Slice) error {
	facts, err := Look(node)
	if err != nil {
		return err
	}
	claimed, err := claim(node, facts.Dev, s)
	if err != nil {
		return err
	}
	defer func() { _ = claimed.Close() }()
	file, err := imagefile.OpenDirect(node, os.O_WRONLY)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	// The superblock of the journal is first.
	for at := s.OffsetBytes; at < s.end(); at += chunk.Bytes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := file.WriteAt(chunk.Zeros[:min(chunk.Bytes, s.end()-at)], int64(at)); err != nil {
			return fmt.Errorf("cannot wipe the slice at byte %d of %s: %w", s.OffsetBytes, node, err)
		}
	}
	return file.Sync()
}

// CheckFree refuses a slice in use, before anything changes.
func CheckFree(node, regionID, id string) error {
	s, err := Find(node, regionID, id)
	if err != nil || s.ID == "" {
		return err
	}
	facts, err := Look(node)
	if err != nil {
		return err
	}
	if by := UserOf(facts.Dev, s.OffsetBytes, s.SizeBytes); by != "" {
		return fmt.Errorf("its slice of %s is %w: %s has it", node, cause.ErrBusy, by)
	}
	return nil
}

// Find returns a slice; without an ID if it is not in the table.
func Find(node, regionID, id string) (s Slice, err error) {
	t, err := List(node, regionID)
	if err != nil {
		return s, err
	}
	if at := t.find(id); at >= 0 {
		s = t.Slices[at]
	}
	return s, nil
}

// List reads the table of a region; with an ID, of that region alone.
func List(node, regionID string) (Table, error) {
	d, err := open(context.Background(), node, false)
	if err != nil {
		return Table{}, err
	}
	defer d.close()
	// A table that is written meanwhile may have no valid copy for a moment.
	for attempt := 1; ; attempt++ {
		t, err := d.readThere(regionID)
		if err == nil || attempt == readAttempts {
			return t, err
		}
		time.Sleep(time.Millisecond)
	}
}

// readAttempts limits the reads of a table that is being written.
const readAttempts = 5

// Locate returns the node that a region has now: that one, or if another region is there,
// the memory device with its ID. Without success it returns the given one.
func Locate(node, regionID string) string {
	if regionID == "" {
		return node
	}
	for _, at := range append([]string{node}, Nodes()...) {
		d, err := open(context.Background(), at, false)
		if err != nil {
			continue
		}
		t, err := d.read()
		d.close()
		if err == nil && t.ID == regionID {
			return at
		}
	}
	return node
}
