package region

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sort"
	"strings"

	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/records"
)

// Slice is a part of a region, reserved for the journal of one volume.
type Slice struct {
	ID string `json:"id"`
	// Volume and Pool name its user for people; the volume's record has the ID.
	Volume      string `json:"volume"`
	Pool        string `json:"pool"`
	OffsetBytes uint64 `json:"offset_bytes"`
	SizeBytes   uint64 `json:"size_bytes"`
}

func (s Slice) end() uint64 { return s.OffsetBytes + s.SizeBytes }

// Table lists the slices of a region, in the order of their places.
type Table struct {
	Format int    `json:"format"`
	ID     string `json:"id"`
	// SizeBytes is the length of the region when the table was made.
	SizeBytes uint64  `json:"size_bytes"`
	Slices    []Slice `json:"slices"`

	unknown versioned.Unknown
	// generation counts the changes.
	generation uint64
}

const (
	format = 1
	// TableBytes are at the start of the region, and not for slices.
	TableBytes = 1 << 20
	copyBytes  = TableBytes / 2
	copies     = TableBytes / copyBytes
	// A copy is this header, and the table as JSON. The header is little-endian: the
	// magic number, the generation (8 bytes), the length of the JSON (4 bytes) and a
	// CRC-32C of all before it and of the JSON (4 bytes).
	headerBytes = 24
	magic       = "DBSLICES"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrNoTable means that no slice was ever reserved in a region.
var ErrNoTable = errors.New("no table of slices")

// encode returns a copy, padded to whole blocks for direct I/O.
func (t Table) encode() ([]byte, error) {
	text, err := versioned.Encode(t, t.unknown)
	if err != nil {
		return nil, err
	}
	bytes := headerBytes + len(text)
	if bytes > copyBytes {
		return nil, fmt.Errorf("%w: the table of slices is full, with %d slices", cause.ErrNoSpace, len(t.Slices))
	}
	b := chunk.Aligned((bytes + chunk.UnitBytes - 1) / chunk.UnitBytes * chunk.UnitBytes)
	copy(b, magic)
	binary.LittleEndian.PutUint64(b[8:], t.generation)
	binary.LittleEndian.PutUint32(b[16:], uint32(len(text)))
	copy(b[headerBytes:], text)
	binary.LittleEndian.PutUint32(b[20:], checksum(b, len(text)))
	return b, nil
}

func checksum(b []byte, length int) uint32 {
	return crc32.Update(crc32.Checksum(b[:20], castagnoli), castagnoli, b[headerBytes:headerBytes+length])
}

// decode reads a copy. The error wraps ErrNoTable if there is none, and
// versioned.ErrNewer if a newer Daybook has written it.
func decode(b []byte) (t Table, err error) {
	if !bytes.HasPrefix(b, []byte(magic)) {
		return t, ErrNoTable
	}
	length := int(binary.LittleEndian.Uint32(b[16:]))
	if length > len(b)-headerBytes || checksum(b, length) != binary.LittleEndian.Uint32(b[20:]) {
		return t, errors.New("wrong checksum of the table of slices")
	}
	text := b[headerBytes : headerBytes+length]
	if err := versioned.CheckFormat(text, "format", format); err != nil {
		return t, err
	}
	if t.unknown, err = versioned.Decode(text, &t); err != nil {
		return t, err
	}
	t.generation = binary.LittleEndian.Uint64(b[8:])
	return t, t.check()
}

// check refuses a table that Daybook does not write.
func (t Table) check() error {
	if t.Format != format || !records.IsID(t.ID) {
		return fmt.Errorf("a table of slices of format %d with the ID %q", t.Format, t.ID)
	}
	end := uint64(TableBytes)
	for _, s := range t.Slices {
		if !records.IsID(s.ID) || s.OffsetBytes < end || s.OffsetBytes%records.SliceUnitBytes != 0 ||
			s.SizeBytes == 0 || s.SizeBytes%records.SliceUnitBytes != 0 || s.end() > t.SizeBytes || s.end() < s.OffsetBytes {
			return fmt.Errorf("slice %q of %d bytes at byte %d does not fit into the table", s.ID, s.SizeBytes, s.OffsetBytes)
		}
		end = s.end()
	}
	return nil
}

// newest returns the valid copy that was written last. The error wraps ErrNoTable only if
// no copy was ever written.
func newest(all [copies][]byte) (t Table, err error) {
	var errs []error
	found := false
	for _, b := range all {
		one, err := decode(b)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !found || one.generation > t.generation {
			t, found = one, true
		}
	}
	if found {
		return t, nil
	}
	for _, err := range errs {
		if !errors.Is(err, ErrNoTable) {
			return t, err
		}
	}
	return t, ErrNoTable
}

// find returns the index of a slice, below 0 if there is none.
func (t Table) find(id string) int {
	return slices.IndexFunc(t.Slices, func(s Slice) bool { return s.ID == id })
}

// Free are the bytes that no slice has, and the longest piece of them.
func (t Table) Free() (total, longest uint64) {
	t.gaps(func(_ int, _, length uint64) bool {
		total, longest = total+length, max(longest, length)
		return true
	})
	return total, longest
}

// gaps calls do for each piece between slices, with the index of the slice after it, until
// it returns false.
func (t Table) gaps(do func(index int, offset, length uint64) bool) {
	from := uint64(TableBytes)
	for i, s := range t.Slices {
		if !do(i, from, s.OffsetBytes-from) {
			return
		}
		from = s.end()
	}
	end := t.SizeBytes / records.SliceUnitBytes * records.SliceUnitBytes
	if end > from {
		do(len(t.Slices), from, end-from)
	}
}

// mappable says whether a part of a region can be mapped as one piece.
type mappable func(offset, size uint64) bool

// add reserves a slice in the first piece that is long enough and can be mapped as one.
func (t *Table) add(s Slice, whole mappable) (Slice, error) {
	at, isDivided := -1, false
	t.gaps(func(index int, offset, length uint64) bool {
		if length < s.SizeBytes {
			return true
		}
		place, found := placeIn(offset, length, s.SizeBytes, whole)
		if !found {
			isDivided = true
			return true
		}
		at, s.OffsetBytes = index, place
		return false
	})
	if at < 0 {
		total, longest := t.Free()
		why := fmt.Sprintf("the longest piece has %d MiB", longest>>20)
		if isDivided {
			why = "none of their pieces can be mapped as one: a logical volume has several segments (lvs --segments); " +
				"use one with a single segment, or a smaller journal"
		}
		return s, fmt.Errorf("%w for a journal of %d MiB: %d MiB of the region are free, and %s%s", cause.ErrNoSpace, s.SizeBytes>>20, total>>20, why, t.users())
	}
	t.Slices = slices.Insert(t.Slices, at, s)
	return s, nil
}

// placeIn returns the first place in a piece of a region at which size bytes can be mapped as
// one. All are whole units.
func placeIn(offset, length, size uint64, whole mappable) (place uint64, found bool) {
	for length >= size {
		if whole(offset, size) {
			return offset, true
		}
		// So many units can be mapped. Memory is divided in the next one, or before it.
		units := sort.Search(int(size/records.SliceUnitBytes), func(n int) bool { return !whole(offset, uint64(n+1)*records.SliceUnitBytes) })
		skip := uint64(max(units, 1)) * records.SliceUnitBytes
		offset, length = offset+skip, length-skip
	}
	return 0, false
}

// users names the volumes with slices.
func (t Table) users() string {
	if len(t.Slices) == 0 {
		return ""
	}
	var names []string
	for _, s := range t.Slices {
		names = append(names, fmt.Sprintf("%s (%d MiB)", s.Volume, s.SizeBytes>>20))
	}
	return "; slices are of " + strings.Join(names, ", ")
}
