package account

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Series reads the files of a recording one after the other; it is a [Source].
type Series struct {
	paths   []string
	readers []*Reader
	// at is the file being read.
	at int
}

var _ Source = (*Series)(nil)

// OpenSeries opens the recording at path with the older files that a
// [Rotation] left beside it, oldest first.
func OpenSeries(path string) (*Series, error) {
	paths, err := RecordingFiles(path)
	if err != nil {
		return nil, err
	}
	s := &Series{paths: paths}
	for _, name := range paths {
		reader, err := OpenReader(name)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.readers = append(s.readers, reader)
	}
	return s, nil
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
