// Package stream has the format in which Send writes a volume and Receive reads it. It is
// pure: it opens no files.
package stream

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/records"
)

// The format of a stream. All numbers are little
// endian, and offsets and lengths of the image are whole blocks of 4096 bytes.
//
//	stream:  magic (8 bytes) | header | data and zero frames | end
//	frame:   0 type (1) | 1 zero (3) | 4 payload length (4) | 8 checksum (4) | 12 payload
//	header:  type 1; JSON, [Header], at most records.MaxBytes
//	data:    type 2; 0 offset (8) | 8 the data, at most chunk.Bytes
//	zero:    type 3; 0 offset (8) | 8 length (8): this range is zero
//	end:     type 4; 0 base (32) | 32 image (32) | 64 stream (32)
//
// The checksum is CRC-32C of the frame's bytes 0 to 7 and the payload. Data and
// zero frames come in the order of their offsets, without overlap; between them
// the image is as in the base, or zero without a base. "base" and "image" are
// [chunk.ImageSum] of the base (zero without one) and of the image, "stream" is
// the SHA-256 of all bytes of the stream before the end's frame.
const (
	magicText = "daybkvol"
	Format    = 1

	frameHeader = 1
	frameData   = 2
	frameZero   = 3
	frameEnd    = 4

	framePrefixBytes = 12
	offsetBytes      = 8
	endBytes         = 3 * sha256.Size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header describes the image that is sent.
type Header struct {
	Format int `json:"format"`
	// The volume's record, without what belongs to its host.
	Name         string            `json:"name"`
	ID           string            `json:"id"`
	Created      time.Time         `json:"created"`
	SizeBytes    uint64            `json:"size_bytes"`
	Provision    records.Provision `json:"provision"`
	SectorBytes  uint32            `json:"sector_bytes"`
	Weight       uint64            `json:"weight,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	MountOptions string            `json:"mount_options,omitempty"`
	NoAtime      bool              `json:"noatime,omitempty"`
	// Snapshot is the snapshot that is sent; nil for the present content of a volume.
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	// Base is the snapshot that the receiver has already; nil if the stream is complete.
	Base *Base `json:"base,omitempty"`
}

// Snapshot is the snapshot in a header.
type Snapshot struct {
	Name    string    `json:"name"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
}

// Base is the base of an incremental stream.
type Base struct {
	Name      string `json:"name"`
	ID        string `json:"id"`
	SizeBytes uint64 `json:"size_bytes"`
}

// Record is the volume's on the receiving side, called name.
func (h Header) Record(name string) records.Volume {
	from := h.Name
	if h.Snapshot != nil {
		from = records.Origin(h.Name, h.Snapshot.Name)
	}
	return records.Volume{
		Format: records.Format, Name: name, ID: h.ID, Created: h.Created, SizeBytes: h.SizeBytes, Provision: h.Provision, SectorBytes: h.SectorBytes,
		Weight: h.Weight, Labels: h.Labels, MountOptions: h.MountOptions, NoAtime: h.NoAtime, Origin: from,
	}
}

const maxMountOptionsBytes = 4096 - 1 // a page, with its end

// Check refuses values that no volume can have.
func (h Header) Check() error {
	if h.Format != Format {
		return fmt.Errorf("format %d", h.Format)
	}
	if err := h.Record(h.Name).Check(); err != nil {
		return err
	}
	if !records.IsID(h.ID) {
		return fmt.Errorf("identity %.40q", h.ID)
	}
	if len(h.MountOptions) > maxMountOptionsBytes || strings.ContainsRune(h.MountOptions, 0) {
		return fmt.Errorf("mount options of %d bytes", len(h.MountOptions))
	}
	for option := range strings.SplitSeq(h.MountOptions, ",") {
		// The sender must not choose the device or the memory of the journal.
		if strings.HasPrefix(option, "journal_") && !strings.HasPrefix(option, "journal_data=") && !strings.HasPrefix(option, "journal_checksum") && !strings.HasPrefix(option, "journal_async_commit") {
			return fmt.Errorf("mount option %.40q", option)
		}
	}
	if s := h.Snapshot; s != nil && (records.CheckName(s.Name) != nil || !records.IsID(s.ID)) {
		return fmt.Errorf("snapshot %.40q", s.Name)
	}
	if b := h.Base; b != nil && (records.CheckName(b.Name) != nil || !records.IsID(b.ID) || records.CheckSize(b.SizeBytes) != nil) {
		return fmt.Errorf("base %.40q", b.Name)
	}
	return nil
}

// Writer writes a stream.
type Writer struct {
	w   io.Writer
	all hash.Hash
}

// NewWriter begins a stream.
func NewWriter(w io.Writer, header Header) (*Writer, error) {
	s := &Writer{all: sha256.New()}
	s.w = io.MultiWriter(w, s.all)
	text, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	if err := header.Check(); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(s.w, magicText); err != nil {
		return nil, err
	}
	return s, s.frame(frameHeader, text)
}

func (s *Writer) frame(kind byte, parts ...[]byte) error {
	var prefix [framePrefixBytes]byte
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	prefix[0] = kind
	binary.LittleEndian.PutUint32(prefix[4:], uint32(length))
	binary.LittleEndian.PutUint32(prefix[8:], checksum(prefix[:8], parts...))
	for _, part := range append([][]byte{prefix[:]}, parts...) {
		if _, err := s.w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func checksum(prefix []byte, parts ...[]byte) uint32 {
	crc := crc32.Checksum(prefix, castagnoli)
	for _, part := range parts {
		crc = crc32.Update(crc, castagnoli, part)
	}
	return crc
}

// Data writes the data at an offset: at most chunk.Bytes.
func (s *Writer) Data(offset uint64, piece []byte) error {
	return s.frame(frameData, binary.LittleEndian.AppendUint64(nil, offset), piece)
}

// Zero writes that a range is zero.
func (s *Writer) Zero(offset, length uint64) error {
	return s.frame(frameZero, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, offset), length))
}

// End ends the stream.
func (s *Writer) End(base, image chunk.Sum) error {
	before := s.all.Sum(nil)
	return s.frame(frameEnd, base[:], image[:], before)
}

// Frame is a frame of a stream, except the header.
type Frame struct {
	Offset, Length uint64
	// Data is valid until the next frame is read; nil: zeros.
	Data []byte
	// End marks the last frame, which has the checksums of the base and of the image.
	End         bool
	Base, Image chunk.Sum
}

// Reader reads a stream, which may come from any sender. It uses no more memory than two
// frames, and returns frames that are in order and within the image.
type Reader struct {
	r      io.Reader
	all    hash.Hash
	Header Header
	// next is the least offset that may come.
	next  uint64
	space []byte
}

// ErrDamaged is wrapped by the errors of a damaged or incomplete stream.
var ErrDamaged = fmt.Errorf("the stream is %w", cause.ErrCorrupt)

// NewReader reads a stream's beginning.
func NewReader(r io.Reader) (*Reader, error) {
	s := &Reader{r: r, all: sha256.New()}
	magic := make([]byte, len(magicText))
	if err := s.read(magic); err != nil {
		return nil, err
	}
	if string(magic) != magicText {
		return nil, fmt.Errorf("this is no stream of a volume: it begins with %q, want %q: %w", magic, magicText, cause.ErrInvalid)
	}
	_, _ = s.all.Write(magic) // never fails
	kind, text, err := s.rawFrame()
	if err != nil {
		return nil, err
	}
	if kind != frameHeader {
		return nil, fmt.Errorf("%w: frame of type %d instead of the header", ErrDamaged, kind)
	}
	err = versioned.CheckFormat(text, "format", Format)
	if err == nil {
		err = versioned.DecodeStrict(text, &s.Header)
		if s.Header.Format != Format {
			err = cmp.Or(s.Header.Check(), err)
		}
	}
	if errors.Is(err, versioned.ErrNewer) {
		return nil, cause.Unreadable("the stream", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	if err := s.Header.Check(); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	return s, nil
}

func (s *Reader) read(b []byte) error {
	_, err := io.ReadFull(s.r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is cut off", ErrDamaged)
	}
	return err
}

// most is how long a frame's payload may be.
func most(kind byte) uint32 {
	switch kind {
	case frameHeader:
		return records.MaxBytes
	case frameData:
		return offsetBytes + chunk.Bytes
	case frameZero:
		return 2 * offsetBytes
	case frameEnd:
		return endBytes
	}
	return 0
}

// rawFrame reads a frame and checks its checksum.
func (s *Reader) rawFrame() (kind byte, payload []byte, err error) {
	var prefix [framePrefixBytes]byte
	if err := s.read(prefix[:]); err != nil {
		return 0, nil, err
	}
	kind = prefix[0]
	length := binary.LittleEndian.Uint32(prefix[4:])
	if most(kind) == 0 || prefix[1] != 0 || prefix[2] != 0 || prefix[3] != 0 || length > most(kind) {
		return 0, nil, fmt.Errorf("%w: frame of type %d with %d bytes", ErrDamaged, kind, length)
	}
	if s.space == nil {
		// Such that a data frame's data lie where direct I/O takes them.
		const page = chunk.UnitBytes
		s.space = chunk.Aligned(page + chunk.Bytes)[page-offsetBytes:]
	}
	payload = s.space[:length]
	if err := s.read(payload); err != nil {
		return 0, nil, err
	}
	if got, want := checksum(prefix[:8], payload), binary.LittleEndian.Uint32(prefix[8:]); got != want {
		return 0, nil, fmt.Errorf("%w: checksum %08x, want %08x", ErrDamaged, got, want)
	}
	if kind == frameEnd {
		return kind, payload, nil // its sum is of what came before
	}
	_, _ = s.all.Write(prefix[:]) // never fails
	_, _ = s.all.Write(payload)
	return kind, payload, nil
}

// Frame gives the next frame.
func (s *Reader) Frame() (Frame, error) {
	kind, payload, err := s.rawFrame()
	if err != nil {
		return Frame{}, err
	}
	switch {
	case kind == frameEnd && len(payload) == endBytes:
		f := Frame{End: true, Base: chunk.Sum(payload[:32]), Image: chunk.Sum(payload[32:64])}
		if !bytes.Equal(payload[64:], s.all.Sum(nil)) {
			return Frame{}, fmt.Errorf("%w: its sum is wrong: frames are missing, or of another stream", ErrDamaged)
		}
		return f, s.ended()
	case kind == frameData && len(payload) > offsetBytes:
		f := Frame{Offset: binary.LittleEndian.Uint64(payload), Data: payload[offsetBytes:]}
		f.Length = uint64(len(f.Data))
		return f, s.advance(f)
	case kind == frameZero && len(payload) == 2*offsetBytes:
		f := Frame{Offset: binary.LittleEndian.Uint64(payload), Length: binary.LittleEndian.Uint64(payload[offsetBytes:])}
		return f, s.advance(f)
	}
	return Frame{}, fmt.Errorf("%w: frame of type %d with %d bytes", ErrDamaged, kind, len(payload))
}

// ended refuses what follows the end, such as a second stream, which would be lost.
func (s *Reader) ended() error {
	_, err := io.ReadFull(s.r, make([]byte, 1))
	if err == nil {
		return fmt.Errorf("%w input: more follows the end of the stream; want one stream", cause.ErrInvalid)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// advance refuses a frame that is not in order, not whole blocks or beyond the image.
func (s *Reader) advance(f Frame) error {
	size := s.Header.SizeBytes
	if f.Offset < s.next || f.Offset > size || f.Length == 0 || f.Length > size-f.Offset || (f.Offset|f.Length)%chunk.UnitBytes != 0 {
		return fmt.Errorf("%w: a frame of %d bytes at %d, want it in order and within %d bytes", ErrDamaged, f.Length, f.Offset, size)
	}
	s.next = f.Offset + f.Length
	return nil
}

// Difference writes the blocks of a part that differ from the base. Nil is
// a part of zeros; beyond its end the base is zero.
func (s *Writer) Difference(offset, length uint64, base, part []byte) error {
	at := func(of []byte, from uint64) []byte {
		if from >= uint64(len(of)) {
			return chunk.Zeros[:chunk.UnitBytes]
		}
		return of[from : from+chunk.UnitBytes]
	}
	const same, zero, data = 0, 1, 2
	kind := func(from uint64) int {
		block := at(part, from)
		switch {
		case bytes.Equal(block, at(base, from)):
			return same
		case chunk.IsZero(block):
			return zero
		}
		return data
	}
	if part == nil && base == nil {
		return nil
	}
	for from := uint64(0); from < length; {
		is, to := kind(from), from+chunk.UnitBytes
		for to < length && kind(to) == is {
			to += chunk.UnitBytes
		}
		var err error
		switch is {
		case zero:
			err = s.Zero(offset+from, to-from)
		case data:
			err = s.Data(offset+from, part[from:to])
		}
		if err != nil {
			return err
		}
		from = to
	}
	return nil
}
