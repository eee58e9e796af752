package account

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/trusted"
)

// Rotation bounds a recording at PATH. When a sample would make the file larger
// than MaxBytes, PATH becomes PATH.1, PATH.1 becomes PATH.2 and so on, and a new
// file is started. Each file is a recording of its own. At most Files of them
// are kept, PATH included; the oldest is removed. The zero value never rotates.
type Rotation struct {
	// MaxBytes is at least MinRotateBytes; 0: never rotate. A single sample
	// that is larger gets a file of its own.
	MaxBytes int64
	// Files is 1 to MaxRotateFiles; used only with MaxBytes.
	Files int
}

// Bounds and defaults of a [Rotation].
const (
	MinRotateBytes     = 4 << 10
	DefaultRotateBytes = 64 << 20
	DefaultRotateFiles = 4
	MaxRotateFiles     = 1000
)

// nextSuffix is that of the file which is to be started; a killed process may
// leave it.
const nextSuffix = ".new"

// Check refuses what is out of range.
func (r Rotation) Check() error {
	if r.MaxBytes != 0 && r.MaxBytes < MinRotateBytes {
		return fmt.Errorf("a file of at most %d bytes is too small: want at least %d, or 0 for no bound", r.MaxBytes, MinRotateBytes)
	}
	if r.MaxBytes != 0 && (r.Files < 1 || r.Files > MaxRotateFiles) {
		return fmt.Errorf("%d files: want 1 to %d", r.Files, MaxRotateFiles)
	}
	return nil
}

// full reports whether a line of so many bytes belongs in the next file.
func (r *Recorder) full(lineBytes int) bool {
	return r.rotation.MaxBytes > 0 && r.end > r.begin && r.end+int64(lineBytes) > r.rotation.MaxBytes
}

// rotate begins a new file. If it fails, the recording goes on where it was.
func (r *Recorder) rotate() error {
	older, err := rotated(r.path)
	if err != nil {
		return fmt.Errorf("cannot rotate the recording: %w", err)
	}
	// The oldest first: its room may be what the new file needs.
	for len(older) > 0 && older[len(older)-1]+1 >= r.rotation.Files {
		if err := os.Remove(rotatedPath(r.path, older[len(older)-1])); err != nil {
			return fmt.Errorf("cannot rotate the recording: %w", err)
		}
		older = older[:len(older)-1]
	}
	next, err := beginRecording(r.path + nextSuffix)
	if err != nil {
		return fmt.Errorf("cannot rotate the recording: %w", err)
	}
	for _, n := range slices.Backward(older) {
		if err == nil {
			err = os.Rename(rotatedPath(r.path, n), rotatedPath(r.path, n+1))
		}
	}
	if err == nil && r.rotation.Files > 1 {
		err = os.Rename(r.path, rotatedPath(r.path, 1))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // somebody moved it away: so much the better
		}
	}
	if err == nil {
		err = os.Rename(r.path+nextSuffix, r.path)
	}
	if err != nil {
		return fmt.Errorf("cannot rotate the recording: %w", errors.Join(err, next.Close(), os.Remove(r.path+nextSuffix)))
	}
	closed := r.Close()
	r.file, r.lock, r.begin, r.end = next.file, next.lock, next.begin, next.end
	return closed
}

// beginRecording makes an empty recording that nobody else can record to. What
// a killed process left at the path is removed, if it is one.
func beginRecording(path string) (*Recorder, error) {
	if err := removeUnbegun(path); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, err
	}
	r := &Recorder{file: file}
	if err := r.prepare(); err != nil {
		return nil, errors.Join(err, r.Close(), os.Remove(path))
	}
	return r, nil
}

func removeUnbegun(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && (info.Size() > 0 || !info.Mode().IsRegular()) && !isRecording(path) {
		return fmt.Errorf("%s exists and is not a recording; move it away", path)
	}
	return errors.Join(err, os.Remove(path))
}

// unbegun reports whether a file is empty, or has a part of a header: a power cut can leave that of
// one that was just begun.
func unbegun(path string) bool {
	header, err := recordingHeaderLine()
	if err != nil {
		return false
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > int64(len(header)) {
		return false
	}
	text, err := os.ReadFile(path)
	return err == nil && bytes.HasPrefix(header, text)
}

func isRecording(path string) bool {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	return startsLikeHeader(file)
}

// maxLinks is how many symbolic links the kernel follows.
const maxLinks = 40

// resolved is the path that a symbolic link leads to, which need not exist: the older files are
// beside it, and a rotation must replace it and not the link. flags are those for opening it: a
// link that is put there meanwhile is not followed. The error is that of trusted.ReadLink.
func resolved(path string) (at string, flags int, err error) {
	at = path
	for range maxLinks {
		next, err := trusted.ReadLink(at)
		var refused *trusted.Error
		if errors.As(err, &refused) {
			return "", 0, fmt.Errorf("%s: %w; choose a file in a directory of your own", at, err)
		}
		if err != nil || next == "" {
			break
		}
		if leadsToNoPath(at, next) {
			return at, 0, nil
		}
		at = next
	}
	return at, syscall.O_NOFOLLOW, nil
}

// leadsToNoPath says that at is a link of /proc to what is not at the path in it, such as a pipe.
func leadsToNoPath(at, next string) bool {
	var in unix.Statfs_t
	if unix.Statfs(directoryOf(at), &in) != nil || in.Type != unix.PROC_SUPER_MAGIC {
		return false // another user could change what is compared below
	}
	named, err := os.Stat(at)
	if err != nil {
		return false
	}
	found, err := os.Stat(next)
	return err != nil || !os.SameFile(named, found)
}

// directoryOf is not filepath.Dir, which takes "link/.." for the directory of the link.
func directoryOf(path string) string {
	directory, _ := filepath.Split(path)
	return cmp.Or(directory, ".")
}

func rotatedPath(path string, n int) string { return path + "." + strconv.Itoa(n) }

// rotated lists the numbers of the older files of a recording, newest first.
// Files of such names that are not recordings are left out.
func rotated(path string) ([]int, error) {
	entries, err := os.ReadDir(directoryOf(path))
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, entry := range entries {
		digits, ours := strings.CutPrefix(entry.Name(), filepath.Base(path)+".")
		n, err := strconv.Atoi(digits)
		if ours && err == nil && n > 0 && strconv.Itoa(n) == digits && isRecording(rotatedPath(path, n)) {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// checkRotation refuses to begin where a rotation would replace a file that is
// not a recording.
func checkRotation(path string, files int) error {
	for n := 1; n < files; n++ {
		name := rotatedPath(path, n)
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if !isRecording(name) {
			return fmt.Errorf("%s exists and is not a recording; choose another file, or move it away", name)
		}
	}
	return nil
}

func recordingHeaderLine() ([]byte, error) { return json.Marshal(recordingHeader{RecordingVersion}) }

// RecordingFiles lists the files of a recording that was rotated, oldest
// first; of one that was not, path alone.
func RecordingFiles(path string) ([]string, error) {
	numbers, err := rotated(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot look for older files of the recording: %w", err)
	}
	var files []string
	for _, n := range slices.Backward(numbers) {
		files = append(files, rotatedPath(path, n))
	}
	if _, err := os.Lstat(path); err == nil || len(files) == 0 {
		files = append(files, path)
	}
	return files, nil
}
