package account

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/daybook-project/daybook/internal/filelock"
)

// A recording is text, one JSON object per line: first the header, then one
// [Sample] per interval, in the order they were taken. Text can be cut, joined
// and read with other tools; a line is written whole, so that a crash costs at
// most the last one.
const (
	// RecordingVersion is raised when a field changes its meaning.
	RecordingVersion = 1
	// maxLineBytes bounds a line; 5,000 containers take about 2 MiB.
	maxLineBytes = 8 << 20
)

// recordingHeader is the first line.
type recordingHeader struct {
	Version int `json:"daybook_recording"`
}

// AppendJSON appends the sample as one line of JSON without the line feed.
// What a terminal could obey (C1 controls, bidirectional overrides) is
// escaped, because container names are chosen by strangers. Lists are never
// null.
func (s Sample) AppendJSON(dst []byte) ([]byte, error) {
	devices := make([]Device, len(s.Devices))
	copy(devices, s.Devices)
	for i := range devices {
		if devices[i].Containers == nil {
			devices[i].Containers = []Container{}
		}
	}
	s.Devices = devices
	text, err := json.Marshal(s)
	if err != nil {
		return dst, fmt.Errorf("cannot write a sample as JSON: %w", err)
	}
	return AppendPrintable(dst, text), nil
}

// AppendPrintable appends JSON text to dst with the runes escaped that are not for
// printing.
// All of them are inside strings: JSON's own syntax is ASCII.
func AppendPrintable(dst, text []byte) []byte {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r < 0x7f || unicode.IsPrint(r) && r != utf8.RuneError:
			dst = append(dst, text[:size]...)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, high, low)
		default:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
		text = text[size:]
	}
	return dst
}

// Recorder appends samples to a recording. It is not safe for concurrent use.
type Recorder struct {
	file     *os.File
	lock     *filelock.Lock
	path     string
	rotation Rotation
	line     []byte
	// begin is where the first sample begins, in bytes.
	begin int64
	// end is where the last whole line ends, in bytes.
	end int64
	// dropped is how many bytes of a broken last line were cut off.
	dropped int64
}

// OpenRecorder opens the recording at path for appending, and creates it where
// there is none. The file must be a regular one and either empty or a
// recording of this version; one that another process is recording to is
// refused, and so is one whose lock cannot be taken ([ErrLock]), and a symbolic link of
// another user in a directory such as /tmp. A last line that a crash left without its end
// is cut off; see [Recorder.Dropped]. It is never rotated.
func OpenRecorder(path string) (*Recorder, error) { return OpenRotating(path, Rotation{}) }

// OpenRotating is [OpenRecorder] for a recording that is bounded.
func OpenRotating(path string, rotation Rotation) (*Recorder, error) {
	if err := rotation.Check(); err != nil {
		return nil, fmt.Errorf("cannot record: %w", err)
	}
	path, flags, err := resolved(path)
	if err != nil {
		return nil, fmt.Errorf("cannot record: %w", err)
	}
	if rotation.MaxBytes > 0 {
		if err := checkRotation(path, rotation.Files); err != nil {
			return nil, fmt.Errorf("cannot record: %w", err)
		}
	}
	// O_NONBLOCK: a named pipe must be refused, not waited for.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NONBLOCK|flags, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot record: %w", err)
	}
	r := &Recorder{file: file, path: path, rotation: rotation}
	if err := r.prepare(); err != nil {
		r.Close()
		return nil, fmt.Errorf("cannot record to %s: %w", path, err)
	}
	return r, nil
}

func (r *Recorder) prepare() error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	if r.lock, err = lockRecording(r.file, info); err != nil {
		return err
	}
	return r.findEnd() // only now: the one that held the lock may have written in between
}

// findEnd finds the end of the last whole line, and begins the recording if there is none.
func (r *Recorder) findEnd() error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	if r.end, err = lastLineEnd(r.file, info.Size()); err != nil {
		return err
	}
	if r.end > 0 {
		if _, err := NewReader(io.NewSectionReader(r.file, 0, r.end), r.path); err != nil {
			return fmt.Errorf("%w; choose another file", err)
		}
	} else if info.Size() > 0 {
		// Not one whole line: cut it off only if it began as ours.
		if !startsLikeHeader(r.file) {
			return errors.New("it exists and is not a recording; choose another file")
		}
	}
	if r.dropped = info.Size() - r.end; r.dropped > 0 {
		if err := r.file.Truncate(r.end); err != nil {
			return err
		}
	}
	header, err := recordingHeaderLine()
	if err != nil {
		return err
	}
	r.begin = int64(len(header)) + 1
	if r.end == 0 {
		return r.append(header)
	}
	return nil
}

// ErrLock says that the lock of a recording cannot be taken, although no other
// process holds it. The cause is wrapped, too. It concerns the directory of locks
// and not the file system of the recording.
var ErrLock = errors.New("its lock cannot be taken")

// lockRecording excludes other recorders of the same file. Who may read the
// recording may lock it, too: the lock is a file of its own, by the recording's
// device and inode. Earlier versions locked the recording.
func lockRecording(recording *os.File, info os.FileInfo) (*filelock.Lock, error) {
	st := info.Sys().(*syscall.Stat_t)
	path, err := filelock.RunPath(fmt.Sprintf("recording-%d-%d", st.Dev, st.Ino))
	var lock *filelock.Lock
	if err == nil {
		lock, err = filelock.TakeBoth(path, recording.Name())
	}
	var held *filelock.HeldError
	switch {
	case errors.As(err, &held):
		return nil, fmt.Errorf("another process is recording to it (%w); choose another file", err)
	case errors.Is(err, syscall.EROFS):
		return nil, fmt.Errorf("%w: %w; make the directory of locks writable (a systemd unit: RuntimeDirectory=daybook)", ErrLock, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrLock, err)
	}
	return lock, nil
}

// lastLineEnd finds the offset after the last line feed, 0 where there is none.
func lastLineEnd(file io.ReaderAt, size int64) (int64, error) {
	buffer := make([]byte, 64<<10)
	for end := size; end > 0; {
		begin := max(0, end-int64(len(buffer)))
		part := buffer[:end-begin]
		if _, err := file.ReadAt(part, begin); err != nil && err != io.EOF {
			return 0, err
		}
		for i := len(part) - 1; i >= 0; i-- {
			if part[i] == '\n' {
				return begin + int64(i) + 1, nil
			}
		}
		end = begin
	}
	return 0, nil
}

func startsLikeHeader(file io.ReaderAt) bool {
	want := []byte(`{"daybook_recording":` + strconv.Itoa(RecordingVersion) + "}")
	got := make([]byte, len(want))
	n, err := file.ReadAt(got, 0)
	if err != nil && err != io.EOF {
		return false
	}
	return n > 0 && string(got[:n]) == string(want[:n])
}

// Dropped is the number of bytes of an unfinished last line that were cut off
// when the recording was opened.
func (r *Recorder) Dropped() int64 { return r.dropped }

// Record appends one sample. It refuses what [NewReader] would refuse to read.
// If the write fails, such as on a full disk, the recording ends with the
// sample before, and the next one may be tried.
func (r *Recorder) Record(s Sample) error {
	if err := s.check(); err != nil {
		return fmt.Errorf("cannot record a sample to %s: %w", r.path, err)
	}
	line, err := s.AppendJSON(r.line[:0])
	if err != nil {
		return err
	}
	r.line = line
	if len(line) >= maxLineBytes {
		return fmt.Errorf("cannot record a sample to %s: it takes %d bytes, a line has at most %d",
			r.path, len(line), maxLineBytes)
	}
	if err := checkFields(line); err != nil {
		return fmt.Errorf("cannot record a sample to %s: %w", r.path, err)
	}
	// Another program can have emptied the file, as logrotate does with copytruncate.
	if info, err := r.file.Stat(); err == nil && info.Size() < max(r.begin, r.end) {
		if err := r.findEnd(); err != nil {
			return fmt.Errorf("cannot record to %s, which another program has cut off: %w", r.path, err)
		}
	}
	if r.full(len(line) + 1) {
		if err := r.rotate(); err != nil {
			return err
		}
	}
	return r.append(line)
}

func (r *Recorder) append(line []byte) error {
	n, err := r.file.WriteAt(append(line, '\n'), r.end)
	if err != nil {
		// A part of the line may be there; what is before it is whole.
		return errors.Join(fmt.Errorf("cannot record: %w", err), r.file.Truncate(r.end))
	}
	r.end += int64(n)
	return nil
}

// Close ends the recording.
func (r *Recorder) Close() error {
	r.lock.Release()
	return r.file.Close()
}
