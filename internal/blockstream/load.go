package blockstream

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// load is the work of the recorded program.
type load struct {
	seed uint64
	// prepare makes the files that the load needs.
	prepare func(directory string, random *rand.Rand) error
	// next does operation n.
	next func(directory string, n int, random *rand.Rand) (Kind, error)
}

func newLoad(o Options) (load, error) {
	switch o.Load {
	case "varmail":
		return load{o.Seed, prepareMail, new(mail).next}, nil
	case "create":
		return load{o.Seed, prepareMake, makeFile}, nil
	}
	return load{}, fmt.Errorf("cannot record %q: want varmail or create", o.Load)
}

// The mail server's files: like filebench's varmail, mean size 16 KiB, but fewer
// of them, because each operation is synced separately here.
const (
	mailFiles       = 1000
	mailDirectories = 20
	mailBytes       = 16 << 10
	// The create-heavy run's files are 4 KiB each, a thousand to a directory.
	makeBytes = 4 << 10
	makeIn    = 1000
)

func mailPath(directory string, n int) string {
	return filepath.Join(directory, fmt.Sprintf("d%02d", n%mailDirectories), fmt.Sprintf("m%05d", n))
}

func prepareMail(directory string, random *rand.Rand) error {
	for n := range mailDirectories {
		if err := os.Mkdir(filepath.Dir(mailPath(directory, n)), 0o700); err != nil {
			return err
		}
	}
	for n := range mailFiles / 2 {
		if err := appendTo(mailPath(directory, 2*n), os.O_CREATE|os.O_EXCL, mailSize(random), false); err != nil {
			return err
		}
	}
	return nil
}

// mailSize is half of the size of a file: half is written first, and the other
// half appended.
func mailSize(random *rand.Rand) int { return 1 + random.IntN(mailBytes-1) }

// mail cycles through varmail's four steps: delete a file; make one, append,
// fsync; read one, append, fsync; read one.
type mail struct{ step int }

func (m *mail) next(directory string, _ int, random *rand.Rand) (Kind, error) {
	step := m.step
	m.step = (m.step + 1) % 4
	// Choose a file that exists, or one that does not, to make it: about half
	// of them exist.
	for range 100 * mailFiles {
		path := mailPath(directory, random.IntN(mailFiles))
		_, err := os.Stat(path)
		if there := err == nil; there == (step == 1) {
			continue
		}
		switch step {
		case 0:
			return Delete, os.Remove(path)
		case 1:
			return Create, appendTo(path, os.O_CREATE|os.O_EXCL, mailSize(random), true)
		case 2:
			if err := readAll(path); err != nil {
				return Append, err
			}
			return Append, appendTo(path, 0, mailSize(random), true)
		}
		return Read, readAll(path)
	}
	return 0, errors.New("found no file for the next step")
}

func appendTo(path string, flags, bytes int, sync bool) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|flags, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, bytes))
	if err == nil && sync {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func readAll(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, file)
	return errors.Join(err, file.Close())
}

func prepareMake(string, *rand.Rand) error { return nil }

func makeFile(directory string, n int, _ *rand.Rand) (Kind, error) {
	in := filepath.Join(directory, fmt.Sprintf("t%03d", n/makeIn))
	if n%makeIn == 0 {
		if err := os.Mkdir(in, 0o700); err != nil {
			return Make, err
		}
	}
	return Make, appendTo(filepath.Join(in, fmt.Sprintf("f%05d", n)), os.O_CREATE|os.O_EXCL, makeBytes, false)
}
