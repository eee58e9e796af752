package blockdev

import (
	"fmt"
	"math"
	"os"
)

// Stat is the I/O of a disk since it was made, from /sys/block/NAME/stat. The
// counters never decrease while the disk exists (a loop device keeps its
// counters from one file to the next), and count completed requests.
type Stat struct {
	// ReadBytes and WriteBytes do not contain discards.
	ReadBytes, WriteBytes uint64
	// DiscardBytes is the number of discarded bytes (0 before kernel 4.18).
	DiscardBytes uint64
	// Reads, Writes, Discards and Flushes count requests.
	Reads, Writes, Discards, Flushes uint64
	// InFlight is the number of requests now started and not completed.
	InFlight uint64
	// BusySeconds is the time in which at least one request was in flight.
	BusySeconds float64
}

// Bytes is the number of bytes read and written.
func (s Stat) Bytes() uint64 { return s.ReadBytes + s.WriteBytes }

// Stat reads the counters of the disk. For repeated reads see [Disk.OpenStat].
func (d Disk) Stat() (Stat, error) {
	reader, err := d.OpenStat()
	if err != nil {
		return Stat{}, err
	}
	defer reader.Close()
	return reader.Read()
}

// StatReader reads the counters of one disk repeatedly with one system call and
// no allocation. It is not safe for concurrent use.
type StatReader struct {
	name   string
	file   *os.File
	buffer [512]byte
}

// OpenStat opens the counters of the disk for repeated reading.
func (d Disk) OpenStat() (*StatReader, error) {
	file, err := os.Open(d.path("stat"))
	if err != nil {
		return nil, goneIfMissing(d.Name, err)
	}
	return &StatReader{name: d.Name, file: file}, nil
}

// Read returns the current counters; the error wraps ErrGone if the disk was
// removed.
func (r *StatReader) Read() (Stat, error) {
	n, err := r.file.ReadAt(r.buffer[:], 0)
	if n == 0 && err != nil {
		return Stat{}, goneIfMissing(r.name, err)
	}
	stat, err := parseStat(r.buffer[:n])
	if err != nil {
		return Stat{}, fmt.Errorf("disk %s: stat: %w", r.name, err)
	}
	return stat, nil
}

// Close closes the file.
func (r *StatReader) Close() error { return r.file.Close() }

// Fields of /sys/block/NAME/stat, see Documentation/block/stat.rst.
const (
	fieldReads          = 0
	fieldReadSectors    = 2
	fieldWrites         = 4
	fieldWriteSectors   = 6
	fieldInFlight       = 8
	fieldBusyMillis     = 9
	fieldDiscards       = 11
	fieldDiscardSectors = 13
	fieldFlushes        = 15
	minFields           = 11 // before kernel 4.18
	maxFields           = 17
)

func parseStat(text []byte) (Stat, error) {
	var fields [maxFields]uint64
	count := 0
	for i := 0; i < len(text) && count < maxFields; {
		if c := text[i]; c == ' ' || c == '\n' || c == '\t' {
			i++
			continue
		}
		var value uint64
		for ; i < len(text) && text[i] != ' ' && text[i] != '\n' && text[i] != '\t'; i++ {
			digit := uint64(text[i] - '0')
			if digit > 9 {
				return Stat{}, fmt.Errorf("%q: field %d is not a number", text, count+1)
			}
			if value > (math.MaxUint64-digit)/10 {
				return Stat{}, fmt.Errorf("%q: field %d is too large", text, count+1)
			}
			value = value*10 + digit
		}
		fields[count] = value
		count++
	}
	if count < minFields {
		return Stat{}, fmt.Errorf("%q: %d fields, want at least %d", text, count, minFields)
	}
	for _, field := range []int{fieldReadSectors, fieldWriteSectors, fieldDiscardSectors} {
		if fields[field] > math.MaxUint64/SectorBytes {
			return Stat{}, fmt.Errorf("%q: field %d is too large for sectors", text, field+1)
		}
	}
	return Stat{
		ReadBytes:    fields[fieldReadSectors] * SectorBytes,
		WriteBytes:   fields[fieldWriteSectors] * SectorBytes,
		DiscardBytes: fields[fieldDiscardSectors] * SectorBytes,
		Reads:        fields[fieldReads],
		Writes:       fields[fieldWrites],
		Discards:     fields[fieldDiscards],
		Flushes:      fields[fieldFlushes],
		InFlight:     fields[fieldInFlight],
		BusySeconds:  float64(fields[fieldBusyMillis]) / 1000,
	}, nil
}
