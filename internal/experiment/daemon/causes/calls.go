package causes

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const blockBytes = 4096

func nothing(int) error { return nil }

// follow does what an order says.
func (o order) follow() ([]float64, error) {
	switch o.Do {
	case ModeFsync:
		return o.onFile(0, func(fd int) ([]float64, error) {
			return times(o.Count,
				func(n int) error { return unix.Fchmod(fd, uint32(0o600+n%2*0o40)) },
				func(int) error { return unix.Fsync(fd) })
		})
	case AppendFsync, AppendFdatasync:
		sync := unix.Fsync
		if o.Do == AppendFdatasync {
			sync = unix.Fdatasync
		}
		return o.onFile(unix.O_APPEND, func(fd int) ([]float64, error) {
			return times(o.Count, func(int) error { return writeBlock(fd) }, func(int) error { return sync(fd) })
		})
	case WriteSync:
		return o.onFile(unix.O_APPEND|unix.O_SYNC, func(fd int) ([]float64, error) {
			return times(o.Count, nothing, func(int) error { return writeBlock(fd) })
		})
	case AppendMsync:
		return o.onFile(0, o.msyncs)
	case Data:
		return times(1, nothing, func(int) error { return o.data() })
	case Mkdir:
		if err := os.MkdirAll(o.Path, 0o755); err != nil {
			return nil, err
		}
		pause := func(int) error { time.Sleep(time.Duration(o.PauseSeconds * float64(time.Second))); return nil }
		return times(o.Count, pause, func(n int) error {
			return os.Mkdir(fmt.Sprintf("%s/%d-%d", o.Path, os.Getpid(), int(monotonic()*1e9)+n), 0o755)
		})
	case Fragment:
		return nil, o.fragment()
	case Truncate:
		return times(1, nothing, func(int) error { return unix.Truncate(o.Path, 0) })
	}
	return nil, fmt.Errorf("no call %q", o.Do)
}

func (o order) onFile(flags int, do func(fd int) ([]float64, error)) ([]float64, error) {
	fd, err := unix.Open(o.Path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|flags, 0o600)
	if err != nil {
		return nil, err
	}
	seconds, err := do(fd)
	return seconds, errors.Join(err, unix.Close(fd))
}

func writeBlock(fd int) error {
	n, err := unix.Write(fd, make([]byte, blockBytes))
	if err == nil && n != blockBytes {
		err = errors.New("a short write")
	}
	return err
}

func (o order) msyncs(fd int) ([]float64, error) {
	if err := unix.Ftruncate(fd, int64(o.Count)*blockBytes); err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(fd, 0, o.Count*blockBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	seconds, err := times(o.Count,
		func(n int) error { memory[n*blockBytes] = 1; return nil },
		func(int) error { return unix.Msync(memory, unix.MS_SYNC) })
	return seconds, errors.Join(err, unix.Munmap(memory))
}

// data writes a new file and starts its writeback: its blocks are allocated, and
// its pages are on their way to the disk.
func (o order) data() error {
	if err := os.Remove(o.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.Create(o.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for left := o.Bytes; left > 0; left -= int64(len(block)) {
		if _, err := f.Write(block[:min(left, int64(len(block)))]); err != nil {
			return err
		}
	}
	return unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

// fragment makes a file in which each second block is a hole, so that each block
// is an extent.
func (o order) fragment() error {
	f, err := os.Create(o.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(o.Count)*2*blockBytes); err != nil {
		return err
	}
	for n := range o.Count {
		const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
		if err := unix.Fallocate(int(f.Fd()), punch, int64(n)*2*blockBytes, blockBytes); err != nil {
			return err
		}
	}
	return f.Sync()
}
