package blockstream

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"strings"
)

// Sizes of what is recorded.
const (
	BlockBytes = 4096
	LineBytes  = 64
)

// Limits of a recording, which its reader enforces.
const (
	MaxOperations = 1 << 20
	MaxUpdates    = 1 << 12 // of one operation
)

// Kind is the kind of an operation.
type Kind uint8

// The kinds of operations.
const (
	Initial Kind = iota // content from before the recording
	Create              // a file made, written and synced
	Append              // a file read, appended to and synced
	Read                // a file read
	Delete              // a file deleted
	Make                // a file made and written: the create-heavy run
	kinds
)

func (k Kind) String() string {
	names := [kinds]string{"initial", "create", "append", "read", "delete", "make"}
	if k < kinds {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Update is the change of one block.
type Update struct {
	Block uint64
	// Mask has bit n set if line n changed.
	Mask uint64
	// Lines are the new contents of the changed lines, LineBytes for each bit
	// of Mask, in order.
	Lines []byte
}

// Operation is the change of one operation; it contains each block once.
type Operation struct {
	Kind    Kind
	Updates []Update
}

// Stream is a recording.
type Stream []Operation

var magic = [8]byte{'D', 'B', 'K', 'B', 'L', 'K', 'S', '1'}

const headBytes = 16

// Write writes the stream.
func (s Stream) Write(w io.Writer) error {
	if len(s) > MaxOperations {
		return fmt.Errorf("cannot write recording: %d operations, want at most %d", len(s), MaxOperations)
	}
	blocks := map[uint64]bool{}
	for n, o := range s {
		if len(o.Updates) > MaxUpdates {
			return fmt.Errorf("cannot write recording: operation %d has %d updates, want at most %d", n, len(o.Updates), MaxUpdates)
		}
		for _, u := range o.Updates {
			if len(u.Lines) != LineBytes*bits.OnesCount64(u.Mask) {
				return fmt.Errorf("cannot write recording: operation %d, block %d: %d bytes for mask %#x", n, u.Block, len(u.Lines), u.Mask)
			}
			blocks[u.Block] = true
		}
	}
	le := binary.LittleEndian
	out := bufio.NewWriterSize(w, 1<<16)
	head := le.AppendUint32(magic[:len(magic):len(magic)], uint32(len(s)))
	_, _ = out.Write(le.AppendUint32(head, uint32(len(blocks))))
	for _, o := range s {
		_, _ = out.Write(le.AppendUint16([]byte{byte(o.Kind), 0}, uint16(len(o.Updates))))
		for _, u := range o.Updates {
			_, _ = out.Write(le.AppendUint64(le.AppendUint64(nil, u.Block), u.Mask))
			_, _ = out.Write(u.Lines)
		}
	}
	return out.Flush()
}

// Parse reads a recording.
func Parse(r io.Reader) (Stream, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	var head [headBytes]byte
	if _, err := io.ReadFull(in, head[:]); err != nil || [8]byte(head[:8]) != magic {
		return nil, errors.New("this is not a recording of block updates: it does not start with " + string(magic[:]))
	}
	le := binary.LittleEndian
	operations := le.Uint32(head[8:])
	if operations > MaxOperations {
		return nil, fmt.Errorf("damaged recording: %d operations, want at most %d", operations, MaxOperations)
	}
	var s Stream
	for n := range operations {
		o, err := parseOperation(in)
		if err != nil {
			return nil, fmt.Errorf("damaged recording: operation %d of %d: %w", n, operations, err)
		}
		s = append(s, o)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		return nil, errors.New("damaged recording: something follows its last operation")
	}
	return s, nil
}

func parseOperation(in io.Reader) (Operation, error) {
	le := binary.LittleEndian
	var head [16]byte
	if _, err := io.ReadFull(in, head[:4]); err != nil {
		return Operation{}, err
	}
	o := Operation{Kind: Kind(head[0])}
	updates := le.Uint16(head[2:])
	if o.Kind >= kinds || head[1] != 0 || updates > MaxUpdates {
		return Operation{}, fmt.Errorf("its head is % x", head[:4])
	}
	for range updates {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return Operation{}, err
		}
		u := Update{Block: le.Uint64(head[:]), Mask: le.Uint64(head[8:])}
		u.Lines = make([]byte, LineBytes*bits.OnesCount64(u.Mask))
		if _, err := io.ReadFull(in, u.Lines); err != nil {
			return Operation{}, err
		}
		o.Updates = append(o.Updates, u)
	}
	return o, nil
}

// WriteFile writes the stream to a new or emptied file.
func (s Stream) WriteFile(path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("cannot write recording: %w", err)
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if !strings.HasSuffix(path, ".gz") {
		return s.Write(file)
	}
	packed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(s.Write(packed), packed.Close())
}

// ReadFile reads a recording.
func ReadFile(path string) (s Stream, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read recording: %w", err)
	}
	defer func() { _ = file.Close() }()
	var in io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(file); err != nil {
			return nil, fmt.Errorf("cannot read recording %s: %w", path, err)
		}
	}
	if s, err = Parse(in); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Counts are the totals of a stream, without Initial operations.
type Counts struct {
	Operations, Updates, Lines int
	// Blocks is the number of distinct blocks.
	Blocks int
}

// Count computes the totals.
func (s Stream) Count() Counts {
	var c Counts
	blocks := map[uint64]bool{}
	for _, o := range s {
		if o.Kind == Initial {
			continue
		}
		c.Operations++
		c.Updates += len(o.Updates)
		for _, u := range o.Updates {
			c.Lines += bits.OnesCount64(u.Mask)
			blocks[u.Block] = true
		}
	}
	c.Blocks = len(blocks)
	return c
}
