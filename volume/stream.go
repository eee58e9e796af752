package volume

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
)

// The stream that carries a volume to another pool. All numbers are little
// endian, and offsets and lengths of the image are whole blocks of 4096 bytes.
//
//	stream:  magic (8 bytes) | header | data and zero frames | end
//	frame:   0 type (1) | 1 zero (3) | 4 payload length (4) | 8 checksum (4) | 12 payload
//	header:  type 1; JSON, [streamHeader], at most maxRecordBytes
//	data:    type 2; 0 offset (8) | 8 what is there, at most chunkBytes
//	zero:    type 3; 0 offset (8) | 8 length (8): there is nothing but zeros
//	end:     type 4; 0 base (32) | 32 image (32) | 64 stream (32)
//
// The checksum is CRC-32C of the frame's bytes 0 to 7 and the payload. Data and
// zero frames come in the order of their offsets, without overlap; between them
// the image is as in the base, or zero without a base. "base" and "image" are
// [imageSum] of the base (zero without one) and of what is sent, "stream" is
// the SHA-256 of all bytes of the stream before the end's frame.
const (
	streamMagic  = "daybkvol"
	streamFormat = 1

	frameHeader = 1
	frameData   = 2
	frameZero   = 3
	frameEnd    = 4

	framePrefixBytes = 12
	offsetBytes      = 8
	endBytes         = 3 * sha256.Size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// streamHeader says what is sent.
type streamHeader struct {
	Format int `json:"format"`
	// The volume's record, without what belongs to its host.
	Name         string            `json:"name"`
	ID           string            `json:"id"`
	Created      time.Time         `json:"created"`
	SizeBytes    uint64            `json:"size_bytes"`
	Provision    Provision         `json:"provision"`
	SectorBytes  uint32            `json:"sector_bytes"`
	Weight       uint64            `json:"weight,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	MountOptions string            `json:"mount_options,omitempty"`
	NoAtime      bool              `json:"noatime,omitempty"`
	// Snapshot is what was sent; nil if none was kept of it.
	Snapshot *streamSnapshot `json:"snapshot,omitempty"`
	// Base is what the receiver has already; nil if nothing.
	Base *streamBase `json:"base,omitempty"`
}

type streamSnapshot struct {
	Name    string    `json:"name"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
}

type streamBase struct {
	Name      string `json:"name"`
	ID        string `json:"id"`
	SizeBytes uint64 `json:"size_bytes"`
}

// record is the volume's on the receiving side, called name.
func (h streamHeader) record(name string) Record {
	from := h.Name
	if h.Snapshot != nil {
		from = origin(h.Name, h.Snapshot.Name)
	}
	return Record{
		Format: recordFormat, Name: name, ID: h.ID, Created: h.Created, SizeBytes: h.SizeBytes, Provision: h.Provision, SectorBytes: h.SectorBytes,
		Weight: h.Weight, Labels: h.Labels, MountOptions: h.MountOptions, NoAtime: h.NoAtime, Origin: from,
	}
}

const maxMountOptionsBytes = 4096 - 1 // a page, with its end

// check keeps out what no volume of ours could be.
func (h streamHeader) check() error {
	if h.Format != streamFormat {
		return fmt.Errorf("format %d", h.Format)
	}
	if err := h.record(h.Name).check(); err != nil {
		return err
	}
	if !isID(h.ID) {
		return fmt.Errorf("identity %.40q", h.ID)
	}
	if len(h.MountOptions) > maxMountOptionsBytes || strings.ContainsRune(h.MountOptions, 0) {
		return fmt.Errorf("mount options of %d bytes", len(h.MountOptions))
	}
	for option := range strings.SplitSeq(h.MountOptions, ",") {
		// Which device is the journal is not the sender's to say.
		if strings.HasPrefix(option, "journal_") && !strings.HasPrefix(option, "journal_checksum") && !strings.HasPrefix(option, "journal_async_commit") {
			return fmt.Errorf("mount option %.40q", option)
		}
	}
	if s := h.Snapshot; s != nil && (CheckName(s.Name) != nil || !isID(s.ID)) {
		return fmt.Errorf("snapshot %.40q", s.Name)
	}
	if b := h.Base; b != nil && (CheckName(b.Name) != nil || !isID(b.ID) || CheckSize(b.SizeBytes) != nil) {
		return fmt.Errorf("base %.40q", b.Name)
	}
	return nil
}

// isID says whether it has the form of newID.
func isID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i, c := range []byte(id) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

// streamWriter writes a stream.
type streamWriter struct {
	w   io.Writer
	all hash.Hash
}

// newStreamWriter begins a stream.
func newStreamWriter(w io.Writer, header streamHeader) (*streamWriter, error) {
	s := &streamWriter{all: sha256.New()}
	s.w = io.MultiWriter(w, s.all)
	text, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	if err := header.check(); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(s.w, streamMagic); err != nil {
		return nil, err
	}
	return s, s.frame(frameHeader, text)
}

func (s *streamWriter) frame(kind byte, parts ...[]byte) error {
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

// data says what is at an offset: at most chunkBytes.
func (s *streamWriter) data(offset uint64, piece []byte) error {
	return s.frame(frameData, binary.LittleEndian.AppendUint64(nil, offset), piece)
}

// zero says that nothing but zeros is there.
func (s *streamWriter) zero(offset, length uint64) error {
	return s.frame(frameZero, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, offset), length))
}

// end ends the stream.
func (s *streamWriter) end(base, image sum) error {
	before := s.all.Sum(nil)
	return s.frame(frameEnd, base[:], image[:], before)
}

// frame is one of a stream's frames but the header.
type frame struct {
	// end: it is the last.
	end bool
	// offset and length are where in the image; data is nil if nothing but
	// zeros is there. It is valid until the next call.
	offset, length uint64
	data           []byte
	// base and image are what the end says.
	base, image sum
}

// streamReader reads a stream, which anybody may have written: it takes no more
// memory than two frames, and what it gives is in order and within the image.
type streamReader struct {
	r      io.Reader
	all    hash.Hash
	header streamHeader
	// next is the least offset that may come.
	next  uint64
	space []byte
}

// errStream are the errors of a stream that is not whole.
var errStream = fmt.Errorf("the stream is %w", ErrCorrupt)

// newStreamReader reads a stream's beginning.
func newStreamReader(r io.Reader) (*streamReader, error) {
	s := &streamReader{r: r, all: sha256.New()}
	magic := make([]byte, len(streamMagic))
	if err := s.read(magic); err != nil {
		return nil, err
	}
	if string(magic) != streamMagic {
		return nil, fmt.Errorf("this is no stream of a volume: it begins with %q, want %q: %w", magic, streamMagic, ErrInvalid)
	}
	_, _ = s.all.Write(magic) // never fails
	kind, text, err := s.rawFrame()
	if err != nil {
		return nil, err
	}
	if kind != frameHeader {
		return nil, fmt.Errorf("%w: frame of type %d instead of the header", errStream, kind)
	}
	err = versioned.CheckFormat(text, "format", streamFormat)
	if err == nil {
		err = versioned.DecodeStrict(text, &s.header)
		if s.header.Format != streamFormat {
			err = cmp.Or(s.header.check(), err)
		}
	}
	if errors.Is(err, versioned.ErrNewer) {
		return nil, unreadable("the stream", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: header: %w", errStream, err)
	}
	if err := s.header.check(); err != nil {
		return nil, fmt.Errorf("%w: header: %w", errStream, err)
	}
	return s, nil
}

func (s *streamReader) read(b []byte) error {
	_, err := io.ReadFull(s.r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is cut off", errStream)
	}
	return err
}

// most is how long a frame's payload may be.
func most(kind byte) uint32 {
	switch kind {
	case frameHeader:
		return maxRecordBytes
	case frameData:
		return offsetBytes + chunkBytes
	case frameZero:
		return 2 * offsetBytes
	case frameEnd:
		return endBytes
	}
	return 0
}

// rawFrame reads a frame and checks its checksum.
func (s *streamReader) rawFrame() (kind byte, payload []byte, err error) {
	var prefix [framePrefixBytes]byte
	if err := s.read(prefix[:]); err != nil {
		return 0, nil, err
	}
	kind = prefix[0]
	length := binary.LittleEndian.Uint32(prefix[4:])
	if most(kind) == 0 || prefix[1] != 0 || prefix[2] != 0 || prefix[3] != 0 || length > most(kind) {
		return 0, nil, fmt.Errorf("%w: frame of type %d with %d bytes", errStream, kind, length)
	}
	if s.space == nil {
		// Such that a data frame's data lie where direct I/O takes them.
		const page = sizeUnitBytes
		s.space = aligned(page + chunkBytes)[page-offsetBytes:]
	}
	payload = s.space[:length]
	if err := s.read(payload); err != nil {
		return 0, nil, err
	}
	if got, want := checksum(prefix[:8], payload), binary.LittleEndian.Uint32(prefix[8:]); got != want {
		return 0, nil, fmt.Errorf("%w: checksum %08x, want %08x", errStream, got, want)
	}
	if kind == frameEnd {
		return kind, payload, nil // its sum is of what came before
	}
	_, _ = s.all.Write(prefix[:]) // never fails
	_, _ = s.all.Write(payload)
	return kind, payload, nil
}

// frame gives the next frame.
func (s *streamReader) frame() (frame, error) {
	kind, payload, err := s.rawFrame()
	if err != nil {
		return frame{}, err
	}
	switch {
	case kind == frameEnd && len(payload) == endBytes:
		f := frame{end: true, base: sum(payload[:32]), image: sum(payload[32:64])}
		if !bytes.Equal(payload[64:], s.all.Sum(nil)) {
			return frame{}, fmt.Errorf("%w: its sum is wrong: frames are missing, or of another stream", errStream)
		}
		return f, nil
	case kind == frameData && len(payload) > offsetBytes:
		f := frame{offset: binary.LittleEndian.Uint64(payload), data: payload[offsetBytes:]}
		f.length = uint64(len(f.data))
		return f, s.advance(f)
	case kind == frameZero && len(payload) == 2*offsetBytes:
		f := frame{offset: binary.LittleEndian.Uint64(payload), length: binary.LittleEndian.Uint64(payload[offsetBytes:])}
		return f, s.advance(f)
	}
	return frame{}, fmt.Errorf("%w: frame of type %d with %d bytes", errStream, kind, len(payload))
}

// advance refuses what is not in order, not whole blocks or beyond the image.
func (s *streamReader) advance(f frame) error {
	size := s.header.SizeBytes
	if f.offset < s.next || f.offset > size || f.length == 0 || f.length > size-f.offset || (f.offset|f.length)%sizeUnitBytes != 0 {
		return fmt.Errorf("%w: a frame of %d bytes at %d, want it in order and within %d bytes", errStream, f.length, f.offset, size)
	}
	s.next = f.offset + f.length
	return nil
}
