package account

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// Series reads the files of a recording one after the other; it is a [Source].
type Series struct {
	path    string
	paths   []string
	readers []*Reader
	// at is the file being read.
	at int
	// unbegun: the newest file has no whole first line.
	unbegun bool
}

var _ Source = (*Series)(nil)

// openTries is how often a recording is opened that is rotated meanwhile.
const openTries = 100

// OpenSeries opens the recording at path with the older files that a
// [Rotation] left beside it, oldest first. It may be written meanwhile.
func OpenSeries(path string) (*Series, error) {
	path, flags, err := resolved(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the recording: %w", err)
	}
	for try := 1; ; try++ {
		s, err := openSeries(path, flags)
		switch {
		case try == openTries || err != nil && !errors.Is(err, fs.ErrNotExist):
			return s, err
		case err == nil && s.inPlace():
			return s, nil
		case err == nil:
			// A file got another name meanwhile: it would be read twice, or never.
			if err := s.Close(); err != nil {
				return nil, err
			}
		default:
			// A missing recording has no other file, and no rotation creates one.
			if files, listErr := RecordingFiles(path); listErr != nil || len(files) == 1 && files[0] == path && !exists(path) {
				return nil, err
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func openSeries(path string, flags int) (*Series, error) {
	paths, err := RecordingFiles(path)
	if err != nil {
		return nil, err
	}
	s := &Series{path: path, paths: paths}
	for n, name := range paths {
		reader, err := openReader(name, flags)
		if err != nil && n > 0 && n == len(paths)-1 && unbegun(name) {
			s.unbegun = true
			break
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.readers = append(s.readers, reader)
	}
	return s, nil
}

// inPlace says that the open files still have their names, and that no other was added.
func (s *Series) inPlace() bool {
	for n, r := range s.readers {
		named, err := os.Stat(s.paths[n])
		if err != nil || r.opened != nil && !os.SameFile(named, r.opened) {
			return false
		}
	}
	paths, err := RecordingFiles(s.path)
	return err == nil && slices.Equal(paths, s.paths)
}

// Next gives the next sample, at once; io.EOF at the end of the last file.
func (s *Series) Next(ctx context.Context) (Sample, error) {
	for s.at < len(s.readers) {
		sample, err := s.readers[s.at].Next(ctx)
		if !errors.Is(err, io.EOF) {
			return sample, err
		}
		if s.at == len(s.readers)-1 {
			break
		}
		s.at++
	}
	return Sample{}, io.EOF
}

// Unfinished says, after io.EOF, what a crash left of a last line, "" for
// nothing.
func (s *Series) Unfinished() string {
	for n, r := range s.readers {
		if line, length, truncated := r.Truncated(); truncated {
			return fmt.Sprintf("%s: line %d is unfinished (%d bytes); it is left out", s.paths[n], line, length)
		}
	}
	if s.unbegun {
		return s.paths[len(s.readers)] + ": its first line is unfinished; it has no sample"
	}
	return ""
}

// Close closes the files.
func (s *Series) Close() error {
	var errs []error
	for _, r := range s.readers {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
