package account

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/daybook-project/daybook/internal/versioned"
)

// maxCommas bounds the fields of a line before it is decoded, so that a line of
// a few MiB cannot ask for gigabytes: an empty list entry costs two bytes in
// the file and 150 in memory. 32,768 containers have as many. Those in texts do not count:
// names are chosen by strangers.
const maxCommas = 16 << 15

// checkFields refuses a line of JSON with too many fields.
func checkFields(line []byte) error {
	if bytes.Count(line, []byte{','}) <= maxCommas {
		return nil
	}
	commas, quoted := 0, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++ // the next one ends no text
		case c == ',' && !quoted:
			commas++
		}
	}
	if commas > maxCommas {
		return fmt.Errorf("it has %d fields, at most %d are read", commas, maxCommas)
	}
	return nil
}

// Reader reads a recording; it is a [Source]. It trusts nothing in the file.
type Reader struct {
	input *bufio.Reader
	close func() error
	name  string
	// line is the number of the line read last, from 1.
	line    int
	partial int
	// opened is the file, if [OpenReader] opened one.
	opened os.FileInfo
}

var _ Source = (*Reader)(nil)

// OpenReader opens the recording at path.
func OpenReader(path string) (*Reader, error) { return openReader(path, 0) }

func openReader(path string, flags int) (*Reader, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|flags, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot read the recording: %w", err)
	}
	r, err := NewReader(file, path)
	if err != nil {
		file.Close()
		return nil, err
	}
	r.close = file.Close
	if r.opened, err = file.Stat(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot read the recording: %w", err), file.Close())
	}
	return r, nil
}

// NewReader reads a recording from input, and its header at once; name is
// before the line number in errors.
func NewReader(input io.Reader, name string) (*Reader, error) {
	r := &Reader{input: bufio.NewReaderSize(input, 64<<10), name: name}
	line, _, err := r.readLine()
	switch {
	case err == io.EOF:
		return nil, r.errorf("the file is empty; want a recording made with --record")
	case err != nil:
		return nil, err
	}
	if err := versioned.CheckFormat(line, "daybook_recording", RecordingVersion); err != nil {
		return nil, r.errorf("the recording was %w", err)
	}
	var header recordingHeader
	if err := decodeStrict(line, &header); err != nil || header.Version == 0 {
		return nil, r.errorf("not the header of a recording; want %s", `{"daybook_recording":1}`)
	}
	if header.Version != RecordingVersion {
		return nil, r.errorf("the recording has version %d, want %d", header.Version, RecordingVersion)
	}
	return r, nil
}

// Next gives the next sample, at once; io.EOF at the end. A last line that a
// crash left unfinished counts as the end; see [Reader.Truncated]. Every other
// line that is not a sample, with every value in its range, is an error that
// names the line.
func (r *Reader) Next(ctx context.Context) (Sample, error) {
	if err := ctx.Err(); err != nil {
		return Sample{}, err
	}
	line, whole, err := r.readLine()
	if err != nil {
		return Sample{}, err
	}
	var s Sample
	if err := decodeStrict(line, &s); err != nil {
		if !whole {
			r.partial = len(line)
			return Sample{}, io.EOF
		}
		if isHeader(line) {
			return Sample{}, r.errorf("another recording begins here: replay the parts of a joined file one by one")
		}
		if errors.Is(err, versioned.ErrNewer) {
			return Sample{}, r.errorf("the sample was %w", err)
		}
		return Sample{}, r.errorf("not a sample: %v", err)
	}
	if err := s.check(); err != nil {
		return Sample{}, r.errorf("%v", err)
	}
	return s, nil
}

// isHeader says that a line is the header of a recording.
func isHeader(line []byte) bool {
	var header recordingHeader
	return decodeStrict(line, &header) == nil && header.Version != 0
}

// Truncated reports, after io.EOF, whether the last line was unfinished; line is
// its number and length the bytes that are there.
func (r *Reader) Truncated() (line, length int, truncated bool) {
	return r.line, r.partial, r.partial > 0
}

// Close closes the file, if [OpenReader] opened one.
func (r *Reader) Close() error {
	if r.close == nil {
		return nil
	}
	return r.close()
}

// readLine gives the next line without its line feed; whole is false for a
// last line that has none.
func (r *Reader) readLine() (line []byte, whole bool, err error) {
	r.line++
	for {
		part, err := r.input.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLineBytes {
			return nil, false, r.errorf("the line is longer than %d bytes; this is no recording", maxLineBytes)
		}
		switch {
		case err == nil:
			return line[:len(line)-1], true, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && len(line) > 0:
			return line, false, nil
		case err == io.EOF:
			return nil, false, io.EOF
		default:
			return nil, false, fmt.Errorf("cannot read %s: %w", r.name, err)
		}
	}
}

func (r *Reader) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", r.name, r.line, fmt.Errorf(format, args...))
}

// decodeStrict decodes the whole of text and refuses unknown fields, so that a
// misspelt one, or one that a newer Daybook has added, is not read as zero.
func decodeStrict(text []byte, into any) error {
	if err := checkFields(text); err != nil {
		return err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return errors.New("the line is empty")
	}
	return versioned.DecodeStrict(text, into)
}
