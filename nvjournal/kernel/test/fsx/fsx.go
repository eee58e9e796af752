// Package fsx exercises one file: random operations, the same on the file and
// on a model in memory, and each read must agree. It is what Apple's fsx began,
// written anew: the same seed makes the same operations, so that what it finds
// can be found again.
package fsx

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Options describe the operations on the file.
type Options struct {
	Seed  uint64
	Count int   // operations
	Bytes int64 // the file never grows beyond; 0: 256 KiB
	// BlockBytes is what collapsing and inserting must be multiples of, and
	// direct reads and writes, too: the file system's cluster. 0: 4096.
	BlockBytes int64
	// NoShift omits collapsing and inserting, which only files with extents
	// support.
	NoShift bool
	// NoDirect omits O_DIRECT, which inline data does not support.
	NoDirect bool
}

// File is the file under test: an *os.File, or one that a test breaks.
type File interface {
	ReadAt([]byte, int64) (int, error)
	WriteAt([]byte, int64) (int, error)
	Truncate(int64) error
	Sync() error
	Fd() uintptr
}

// exerciser has the state of a run.
type exerciser struct {
	Options
	path   string
	file   File
	direct *os.File // the same file with O_DIRECT; nil if not used
	model  []byte
	random *rand.Rand
	last   []string // the latest operations, for the error
}

// maxLast is the number of operations in an error.
const maxLast = 30

// operation does something, and describes it.
type operation struct {
	weight int
	do     func(x *exerciser) (string, error)
}

var operations = []operation{
	{10, (*exerciser).read},
	{4, (*exerciser).readMapped},
	{10, (*exerciser).write},
	{4, (*exerciser).append},
	{4, (*exerciser).writeMapped},
	{3, (*exerciser).writeDirect},
	{3, (*exerciser).readDirect},
	{4, (*exerciser).truncate},
	{3, (*exerciser).punch},
	{2, (*exerciser).zero},
	{3, (*exerciser).allocate},
	{1, (*exerciser).collapse},
	{1, (*exerciser).insert},
	{2, (*exerciser).sync},
	{2, (*exerciser).dropCache},
	{1, (*exerciser).reopen},
}

// Run exercises the file at path. It makes the file, and leaves it with the content
// of the model. The error contains seed, operation and place.
func Run(path string, options Options) error { return run(path, options, nil) }

// run is Run; wrap is called with the file, for tests.
func run(path string, options Options, wrap func(File) File) error {
	if options.Bytes == 0 {
		options.Bytes = 256 << 10
	}
	if options.BlockBytes == 0 {
		options.BlockBytes = 4096
	}
	x := &exerciser{Options: options, path: path, random: rand.New(rand.NewPCG(options.Seed, 1))}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() { file.Close() }()
	x.file = file
	if wrap != nil {
		x.file = wrap(file)
	}
	if !options.NoDirect {
		direct, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
		if err != nil {
			return err
		}
		defer direct.Close()
		x.direct = direct
	}
	total := 0
	for _, o := range operations {
		total += o.weight
	}
	for n := range options.Count {
		pick := x.random.IntN(total)
		for _, o := range operations {
			if pick -= o.weight; pick >= 0 {
				continue
			}
			what, err := o.do(x)
			if what != "" {
				x.last = append(x.last, fmt.Sprintf("%d: %s", n, what))
				x.last = x.last[max(0, len(x.last)-maxLast):]
			}
			if err == nil && n%16 == 0 {
				err = x.checkSize()
			}
			if err != nil {
				return fmt.Errorf("fsx %s, seed %d, operation %d: %w; the last ones:\n%s", path, options.Seed, n, err, strings.Join(x.last, "\n"))
			}
			break
		}
	}
	if err := x.checkAll(); err != nil {
		return fmt.Errorf("fsx %s, seed %d, at the end: %w; the last ones:\n%s", path, options.Seed, err, strings.Join(x.last, "\n"))
	}
	return nil
}

// size is the file's.
func (x *exerciser) size() int64 { return int64(len(x.model)) }

// extent picks a place within [0, below) and a length, both sometimes at the
// boundary of a block.
func (x *exerciser) extent(below int64) (offset, length int64) {
	if below <= 0 {
		return 0, 0
	}
	offset = x.random.Int64N(below)
	length = 1 + x.random.Int64N(min(below-offset, 48<<10))
	if x.random.IntN(3) == 0 {
		offset -= offset % x.BlockBytes
	}
	if end := offset + length; x.random.IntN(3) == 0 && end-end%x.BlockBytes > offset {
		length = end - end%x.BlockBytes - offset
	}
	return offset, length
}

// grow makes the model at least this long, with zeros.
func (x *exerciser) grow(size int64) {
	if size > x.size() {
		x.model = append(x.model, make([]byte, size-x.size())...)
	}
}

// fill makes bytes that show when they were written.
func (x *exerciser) fill(length int64) []byte {
	b := make([]byte, length)
	mark := byte(1 + x.random.IntN(255))
	for i := range b {
		b[i] = mark ^ byte(i>>3)
	}
	return b
}

func (x *exerciser) compare(got []byte, offset int64) error {
	want := x.model[offset : offset+int64(len(got))]
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range got {
		if got[i] != want[i] {
			wrong := 0
			for j := range got {
				if got[j] != want[j] {
					wrong++
				}
			}
			return fmt.Errorf("byte %d is %#x, not %#x; %d of the %d bytes from %d on are wrong", offset+int64(i), got[i], want[i], wrong, len(got), offset)
		}
	}
	return nil
}

func (x *exerciser) checkSize() error {
	var s unix.Stat_t
	if err := unix.Fstat(int(x.file.Fd()), &s); err != nil {
		return err
	}
	if s.Size != x.size() {
		return fmt.Errorf("the size is %d, not %d", s.Size, x.size())
	}
	return nil
}

// checkAll reads the whole file.
func (x *exerciser) checkAll() error {
	if err := x.checkSize(); err != nil {
		return err
	}
	got := make([]byte, x.size())
	if n, err := x.file.ReadAt(got, 0); n != len(got) {
		return fmt.Errorf("read %d bytes of %d: %w", n, len(got), err)
	}
	return x.compare(got, 0)
}

// unsupported reports whether the file system lacks such an operation.
func unsupported(err error) bool { return errors.Is(err, unix.EOPNOTSUPP) }
