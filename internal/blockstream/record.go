package blockstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
)

// Options select what is recorded.
type Options struct {
	// Load is "varmail" or "create".
	Load string
	// Operations is the number of recorded operations, 1 to 100,000.
	Operations int
	// Directory is the directory of the temporary images, sparse files of
	// HomeBytes and JournalBytes; "" is the system's directory for temporary
	// files.
	Directory string
	// Seed chooses files and sizes.
	Seed uint64
}

// Sizes of the recorded file system and of its journal, which must hold the
// whole recording.
const (
	HomeBytes      = 1 << 30
	JournalBytes   = 4 << 30
	mostOperations = 100_000
)

// Recording is a stream, and the data to check it.
type Recording struct {
	Stream Stream
	// Revoked has the blocks that were finally revoked: the disk may have other
	// content there.
	Revoked map[uint64]bool
	// Transactions is their number.
	Transactions int
}

// Record runs the load and returns its updates. It needs root, because it makes
// two loop devices and mounts. Before it removes them, it calls inspect, unless
// that is nil, with the unmounted device.
func Record(ctx context.Context, o Options, inspect func(home io.ReaderAt) error) (r Recording, err error) {
	if o.Operations < 1 || o.Operations > mostOperations {
		return r, fmt.Errorf("cannot record %d operations: want 1 to %d", o.Operations, mostOperations)
	}
	load, err := newLoad(o)
	if err != nil {
		return r, err
	}
	var undo undoing
	defer func() { err = errors.Join(err, undo.all()) }()
	s, err := setUp(ctx, o.Directory, &undo)
	if err != nil {
		return r, fmt.Errorf("cannot record: %w", err)
	}
	all, err := s.run(ctx, load, o.Operations)
	if err != nil {
		return r, fmt.Errorf("cannot record: %w", err)
	}
	if err := s.unmount(); err != nil {
		return r, err
	}
	if inspect != nil {
		if err := inspect(s.home); err != nil {
			return r, err
		}
	}
	return s.read(all)
}

// stage is an ext4 with an external journal.
type stage struct {
	directory     string // where it is mounted
	name          string // of the journal, in /proc/fs/jbd2
	home, journal *os.File
	before        *os.File // the home device as it was
	first         uint32   // the first transaction
	unmount       func() error
}

func setUp(ctx context.Context, directory string, undo *undoing) (*stage, error) {
	work, err := os.MkdirTemp(directory, "daybook-updates-")
	if err != nil {
		return nil, err
	}
	undo.add(func() error { return os.RemoveAll(work) })
	s := &stage{directory: filepath.Join(work, "mounted")}
	if err := os.Mkdir(s.directory, 0o700); err != nil {
		return nil, err
	}
	home, err := attach(filepath.Join(work, "home"), HomeBytes, undo)
	if err != nil {
		return nil, err
	}
	journal, err := attach(filepath.Join(work, "journal"), JournalBytes, undo)
	if err != nil {
		return nil, err
	}
	options := ext4.MakeOptions{BlockSizeBytes: BlockBytes, JournalDevice: journal.Path()}
	if err := ext4.Make(ctx, home.Path(), options); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		file **os.File
		path string
	}{{&s.home, home.Path()}, {&s.journal, journal.Path()}} {
		if *f.file, err = os.Open(f.path); err != nil {
			return nil, err
		}
		undo.add((*f.file).Close)
	}
	if s.before, err = sparseCopy(s.home, filepath.Join(work, "before")); err != nil {
		return nil, err
	}
	undo.add(s.before.Close)
	super, err := ReadJournal(s.journal)
	if err != nil {
		return nil, err
	}
	// After an empty journal the kernel continues with the next number.
	s.first = super.Sequence + 1
	// Only the syncs of this package may commit.
	mount := ext4.MountOptions{JournalDevice: journal.Path(), Data: "commit=3600"}
	if err := ext4.Mount(home.Path(), s.directory, mount); err != nil {
		return nil, err
	}
	mounted := true
	s.unmount = func() error {
		if !mounted {
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err := ext4.Unmount(ctx, s.directory)
		mounted = err != nil
		return err
	}
	undo.add(s.unmount)
	s.name = journal.Name
	return s, nil
}

// attach makes a sparse file with a loop device.
func attach(path string, bytes int64, undo *undoing) (blockdev.Loop, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return blockdev.Loop{}, err
	}
	if err := errors.Join(file.Truncate(bytes), file.Close()); err != nil {
		return blockdev.Loop{}, err
	}
	loop, err := blockdev.Attach(path, blockdev.AttachOptions{})
	if err != nil {
		return loop, err
	}
	undo.add(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return loop.Detach(ctx)
	})
	return loop, nil
}

// sparseCopy copies the device without zeros.
func sparseCopy(from io.ReaderAt, path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	fill := func() error {
		if err := file.Truncate(HomeBytes); err != nil {
			return err
		}
		b, zeros := make([]byte, 1<<18), make([]byte, 1<<18)
		for at := int64(0); at < HomeBytes; at += int64(len(b)) {
			if _, err := from.ReadAt(b, at); err != nil {
				return err
			}
			if string(b) == string(zeros) {
				continue
			}
			if _, err := file.WriteAt(b, at); err != nil {
				return err
			}
		}
		return nil
	}
	if err := fill(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot keep the disk as it was: %w", err), file.Close())
	}
	return file, nil
}

// done is an operation, and the kernel's number of transactions after it.
type done struct {
	kind         Kind
	transactions int
}

// run performs the operations and syncs after each. The first element of the
// result is the preparation.
func (s *stage) run(ctx context.Context, load load, operations int) (all []done, err error) {
	root, err := os.Open(s.directory)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	commit := func(kind Kind) error {
		if err := unix.Syncfs(int(root.Fd())); err != nil {
			return fmt.Errorf("cannot sync: %w", err)
		}
		info, err := ext4.JournalInfo(s.name)
		all = append(all, done{kind, int(info.Transactions)})
		return err
	}
	random := rand.New(rand.NewPCG(load.seed, 1))
	if err := load.prepare(s.directory, random); err != nil {
		return nil, err
	}
	if err := commit(Initial); err != nil {
		return nil, err
	}
	for n := range operations {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		kind, err := load.next(s.directory, n, random)
		if err != nil {
			return nil, err
		}
		if err := commit(kind); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// read reads the operations from the journal. An operation is one transaction or
// a few: a separate handle allocates written data.
func (s *stage) read(all []done) (Recording, error) {
	r := Recording{Revoked: map[uint64]bool{}}
	super, err := ReadJournal(s.journal)
	if err != nil {
		return r, err
	}
	d := newDiffer(s.before)
	var together []Transaction
	var operations Stream
	err = super.Transactions(s.journal, s.first, func(t Transaction) error {
		r.Transactions++
		for _, b := range t.Revoked {
			r.Revoked[b] = true
		}
		for _, b := range t.Blocks {
			delete(r.Revoked, b.Number)
		}
		together = append(together, t)
		for len(all) > 0 && all[0].transactions <= r.Transactions {
			o, err := d.operation(all[0].kind, together)
			if err != nil {
				return err
			}
			if len(o.Updates) > 0 {
				operations = append(operations, o)
			}
			all, together = all[1:], nil
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	if len(all) > 0 {
		return r, fmt.Errorf("the kernel counted %d transactions, the journal has %d", all[len(all)-1].transactions, r.Transactions)
	}
	r.Stream = append(d.first(), operations...)
	return r, nil
}

// undoing is a list of steps to undo, last first.
type undoing struct{ steps []func() error }

func (u *undoing) add(step func() error) { u.steps = append(u.steps, step) }

func (u *undoing) all() error {
	var errs []error
	for _, step := range slices.Backward(u.steps) {
		errs = append(errs, step())
	}
	u.steps = nil
	return errors.Join(errs...)
}
