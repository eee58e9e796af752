package vm

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// diskWrite is a write to a disk.
type diskWrite struct {
	offset int64
	data   []byte // never changed
}

// volatileDisk is a disk with a write cache that a power cut empties. One file
// has the content including the cache, which reads return; another has the
// content without it. QEMU is its client, by NBD over an inherited socket, so
// that this process handles each flush of the guest.
type volatileDisk struct {
	durable *os.File // the backing file
	cached  *os.File
	size    int64
	// flushTime is the least time of a flush.
	flushTime time.Duration

	// mu is shared by all disks of a machine: a power cut affects them at the
	// same time.
	mu      *sync.Mutex
	pending []diskWrite // in cached, not in durable
	became  []diskWrite // in durable, since the recording's last point
	// recording is notified of each flush before it takes effect; nil means
	// none.
	recording *Recording

	served chan struct{} // closed when the client has disconnected and the cache is empty
	err    error         // of the server; read after served
}

func newVolatileDisk(dir string, durable *os.File, d Disk, mu *sync.Mutex) (*volatileDisk, error) {
	cached, err := tempFile(dir)
	if err != nil {
		return nil, err
	}
	if err = cached.Truncate(d.SizeBytes); err == nil {
		err = copyData(cached, durable, d.SizeBytes)
	}
	if err != nil {
		cached.Close()
		return nil, err
	}
	return &volatileDisk{durable: durable, cached: cached, size: d.SizeBytes, flushTime: d.FlushTime, mu: mu}, nil
}

// copyData copies the ranges that are not holes.
func copyData(to, from *os.File, size int64) error {
	const piece = 1 << 20
	b := make([]byte, piece)
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			return nil // holes to the end
		}
		if err != nil {
			return &os.PathError{Op: "look for data in", Path: from.Name(), Err: err}
		}
		n, err := from.ReadAt(b[:min(piece, size-data)], data)
		if n == 0 && err != nil {
			return err
		}
		if _, err := to.WriteAt(b[:n], data); err != nil {
			return err
		}
		at = data + int64(n)
	}
	return nil
}

// connect returns the client's end of a socket, and serves the other.
func (d *volatileDisk) connect() (*os.File, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	d.served = make(chan struct{})
	go func() {
		defer close(d.served)
		d.err = serveNBD(ours, d)
		ours.Close()
		if err := d.lose(); d.err == nil {
			d.err = err
		}
	}()
	return theirs, nil
}

// wait waits until the client has closed the socket.
func (d *volatileDisk) wait() error {
	if d.served == nil {
		return nil
	}
	<-d.served
	return d.err
}

// lose empties the cache, as a power cut does.
func (d *volatileDisk) lose() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.pending {
		b := make([]byte, len(w.data))
		if _, err := d.durable.ReadAt(b, w.offset); err != nil {
			return err
		}
		if _, err := d.cached.WriteAt(b, w.offset); err != nil {
			return err
		}
	}
	d.pending = nil
	return nil
}

func (d *volatileDisk) SizeBytes() int64 { return d.size }

func (d *volatileDisk) ReadAt(b []byte, offset int64) (int, error) { return d.cached.ReadAt(b, offset) }

func (d *volatileDisk) WriteAt(b []byte, offset int64) (int, error) {
	if offset < 0 || offset+int64(len(b)) > d.size {
		return 0, fmt.Errorf("%d bytes at %d go beyond the disk's end", len(b), offset)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending = append(d.pending, diskWrite{offset, b})
	return d.cached.WriteAt(b, offset)
}

// Flush makes all writes durable. The state before it is recorded first.
func (d *volatileDisk) Flush() error {
	time.Sleep(d.flushTime)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.recording != nil {
		if err := d.recording.note(); err != nil {
			return err
		}
	}
	for _, w := range d.pending {
		if _, err := d.durable.WriteAt(w.data, w.offset); err != nil {
			return err
		}
	}
	if d.recording != nil {
		d.became = append(d.became, d.pending...)
	}
	d.pending = nil
	return nil
}

// become sets the content of the disk and empties its cache.
func (d *volatileDisk) become(content []byte) error {
	d.pending = nil
	for _, file := range []*os.File{d.durable, d.cached} {
		if _, err := file.WriteAt(content, 0); err != nil {
			return err
		}
	}
	return nil
}

func (d *volatileDisk) close() { d.cached.Close() }
