// Package storm lets several threads do everything to the same few names at
// once: create, rename, link, unlink, truncate, write, allocate, punch, sync,
// attributes, directories. Nobody knows what comes of it, but each operation
// must succeed or fail for a reason that the names give, and the tree must be
// sound and lasting; who started the storm looks at that afterwards.
package storm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Options say how it blows.
type Options struct {
	Seed    uint64
	Threads int
	Count   int // operations of each thread; 0: until the context ends
	Names   int // in each directory; 0: 24
	// Bytes bounds a file. 0: 64 KiB.
	Bytes int64
	// NoAttributes leaves out extended attributes: stock JFS loses their block when
	// the last one is removed, and when one is set while the file is removed.
	NoAttributes bool
	// Allow are errors that are no failure besides those that names give:
	// ENOSPC on a disk that is filled.
	Allow []error
}

// byNames are what other threads do to the names that an operation is on.
var byNames = []error{
	unix.ENOENT, unix.EEXIST, unix.ENOTEMPTY, unix.EISDIR, unix.ENOTDIR, unix.EINVAL, unix.EMLINK, unix.EPERM, unix.ELOOP, unix.ENODATA, unix.EBUSY, unix.ENXIO,
}

// Result counts what was done.
type Result struct {
	Done, Refused int64 // operations; refused for what other threads did
}

type thread struct {
	Options
	dir    string
	random *rand.Rand
}

// verbs by how often they come.
var verbs = []struct {
	weight int
	name   string
	do     func(t *thread) error
}{
	{10, "create and write", (*thread).write},
	{6, "append", (*thread).append},
	{8, "rename", (*thread).rename},
	{3, "exchange", (*thread).exchange},
	{5, "link", func(t *thread) error { return unix.Link(t.name(), t.name()) }},
	{3, "symlink", func(t *thread) error { return unix.Symlink(filepath.Base(t.name()), t.name()) }},
	{10, "unlink", func(t *thread) error { return unix.Unlink(t.name()) }},
	{4, "mkdir", func(t *thread) error { return unix.Mkdir(t.name(), 0o755) }},
	{3, "rmdir", func(t *thread) error { return unix.Rmdir(t.name()) }},
	{5, "truncate", func(t *thread) error { return unix.Truncate(t.name(), t.random.Int64N(t.Bytes)) }},
	{3, "allocate", (*thread).allocate},
	{3, "setxattr", (*thread).setAttribute},
	{2, "removexattr", func(t *thread) error { return unix.Removexattr(t.name(), t.attribute()) }},
	{3, "chmod", func(t *thread) error { return unix.Chmod(t.name(), 0o600|uint32(t.random.IntN(0o200))) }},
	{2, "chown", func(t *thread) error { return unix.Chown(t.name(), t.random.IntN(4), t.random.IntN(4)) }},
	{2, "mkfifo", func(t *thread) error { return unix.Mkfifo(t.name(), 0o600) }},
	{2, "list", (*thread).list},
	{2, "fsync", (*thread).sync},
	{1, "no name", (*thread).unnamed},
}

// Run blows below dir until each thread has done its count, the context ends, or
// an operation fails for no good reason.
func Run(ctx context.Context, dir string, options Options) (Result, error) {
	if options.Names == 0 {
		options.Names = 24
	}
	if options.Bytes == 0 {
		options.Bytes = 64 << 10
	}
	for _, name := range directories {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return Result{}, err
		}
	}
	total := 0
	for _, v := range verbs {
		total += v.weight
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done, refused atomic.Int64
	var all sync.WaitGroup
	for n := range options.Threads {
		t := &thread{options, dir, rand.New(rand.NewPCG(options.Seed, uint64(n)+1))}
		all.Go(func() {
			for i := 0; (options.Count == 0 || i < options.Count) && ctx.Err() == nil; i++ {
				pick, v := t.random.IntN(total), 0
				for pick >= verbs[v].weight {
					pick -= verbs[v].weight
					v++
				}
				if t.NoAttributes && strings.HasSuffix(verbs[v].name, "xattr") {
					continue
				}
				switch err := verbs[v].do(t); {
				case err == nil:
					done.Add(1)
				case oneOf(err, byNames) || oneOf(err, options.Allow):
					refused.Add(1)
				default:
					cancel(fmt.Errorf("storm in %s, seed %d, thread %d, operation %d: %s: %w", dir, options.Seed, n, i, verbs[v].name, err))
				}
			}
		})
	}
	all.Wait()
	result := Result{done.Load(), refused.Load()}
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return result, err
	}
	return result, nil
}

func oneOf(err error, list []error) bool {
	for _, e := range list {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// directories are there from the beginning; names are in them, and in
// directories that threads make there.
var directories = []string{"x", "y", "y/z"}

func (t *thread) name() string {
	name := fmt.Sprintf("n%d", t.random.IntN(t.Names))
	if t.random.IntN(6) == 0 {
		name = filepath.Join(fmt.Sprintf("n%d", t.random.IntN(t.Names)), name)
	}
	return filepath.Join(t.dir, directories[t.random.IntN(len(directories))], name)
}

// open opens what a name stands for, if it is a file.
func (t *thread) open(flags int) (*os.File, error) {
	fd, err := unix.Open(t.name(), flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, err
	}
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil || s.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		if err == nil {
			err = unix.EISDIR
		}
		return nil, err
	}
	return os.NewFile(uintptr(fd), "file"), nil
}

func (t *thread) bytes() []byte {
	b := make([]byte, 1+t.random.IntN(20<<10))
	mark := byte(t.random.IntN(256))
	for i := range b {
		b[i] = mark ^ byte(i>>4)
	}
	return b
}

func (t *thread) write() error {
	flags := unix.O_RDWR | unix.O_CREAT
	if t.random.IntN(4) == 0 {
		flags |= unix.O_TRUNC
	}
	file, err := t.open(flags)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt(t.bytes(), t.random.Int64N(t.Bytes))
	return err
}

func (t *thread) append() error {
	file, err := t.open(unix.O_WRONLY | unix.O_APPEND)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() > t.Bytes {
		return err
	}
	_, err = file.Write(t.bytes())
	return err
}

func (t *thread) rename() error {
	flags := uint(0)
	if t.random.IntN(4) == 0 {
		flags = unix.RENAME_NOREPLACE
	}
	return unix.Renameat2(unix.AT_FDCWD, t.name(), unix.AT_FDCWD, t.name(), flags)
}

func (t *thread) exchange() error {
	return unix.Renameat2(unix.AT_FDCWD, t.name(), unix.AT_FDCWD, t.name(), unix.RENAME_EXCHANGE)
}

func (t *thread) allocate() error {
	file, err := t.open(unix.O_RDWR)
	if err != nil {
		return err
	}
	defer file.Close()
	modes := []uint32{0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_ZERO_RANGE}
	err = unix.Fallocate(int(file.Fd()), modes[t.random.IntN(len(modes))], t.random.Int64N(t.Bytes), 1+t.random.Int64N(t.Bytes))
	if errors.Is(err, unix.EOPNOTSUPP) { // a file of no extents
		return nil
	}
	return err
}

func (t *thread) attribute() string { return fmt.Sprintf("user.n%d", t.random.IntN(4)) }

func (t *thread) setAttribute() error {
	value := make([]byte, t.random.IntN(700))
	for i := range value {
		value[i] = byte(t.random.IntN(3))
	}
	err := unix.Setxattr(t.name(), t.attribute(), value, 0)
	if errors.Is(err, unix.ENOSPC) { // more than the inode's block takes
		return nil
	}
	return err
}

func (t *thread) list() error {
	_, err := os.ReadDir(filepath.Dir(t.name()))
	return err
}

func (t *thread) sync() error {
	file, err := t.open(unix.O_RDWR)
	if err != nil {
		return err
	}
	defer file.Close()
	if t.random.IntN(2) == 0 {
		return unix.Fdatasync(int(file.Fd()))
	}
	return file.Sync()
}

// unnamed makes a file without a name, writes to it, and gives it one or not.
func (t *thread) unnamed() error {
	fd, err := unix.Open(filepath.Join(t.dir, "x"), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "file")
	defer file.Close()
	if _, err := file.Write(t.bytes()); err != nil {
		return err
	}
	if t.random.IntN(2) == 0 {
		return nil
	}
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, t.name(), unix.AT_SYMLINK_FOLLOW)
}
