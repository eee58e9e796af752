package agent

import (
	"os"
	"sync"

	"github.com/daybook-project/daybook/vm/internal/wire"
	"golang.org/x/sys/unix"
)

// output is one of the pipes into which a process and its children write.
type output struct {
	kind wire.Kind
	pipe *os.File

	mu sync.Mutex
	// read and copied are the bytes taken from the pipe and those that copy's function has had.
	read, copied int64
	// owed are the bytes after which reached is closed.
	owed    int64
	reached chan struct{}
}

// copy calls each with what is read until the pipe has no writer left, and closes the pipe. It reads
// also what nobody wants any more: a full or closed pipe would stop the children of the process.
func (o *output) copy(each func([]byte)) {
	defer o.pipe.Close()
	b := make([]byte, wire.OutputPayload)
	for {
		n := o.next(b)
		if n > 0 {
			each(b[:n])
		}
		o.mu.Lock()
		o.copied += int64(n)
		if n == 0 {
			o.copied = o.read
			o.owed = min(o.owed, o.read) // no writer is left
		}
		o.close()
		o.mu.Unlock()
		if n == 0 {
			return
		}
	}
}

// next waits for output, and reads it; 0 at its end.
func (o *output) next(b []byte) int {
	conn, err := o.pipe.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	err = conn.Read(func(fd uintptr) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		var err error
		for {
			if n, err = unix.Read(int(fd), b); err != unix.EINTR {
				break
			}
		}
		n = max(n, 0)
		o.read += int64(n)
		return err != unix.EAGAIN
	})
	if err != nil {
		return 0
	}
	return n
}

// written returns a channel that is closed when all has been copied that is in the pipe now, however
// slow the reader on the host is. It is called once.
func (o *output) written() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reached = make(chan struct{})
	o.owed = o.read
	if conn, err := o.pipe.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { // a closed pipe owes nothing
			pending, _ := unix.IoctlGetInt(int(fd), unix.TIOCINQ) // FIONREAD
			o.owed += int64(max(pending, 0))
		})
	}
	o.close()
	return o.reached
}

// close closes the channel of written if what is owed has been copied.
func (o *output) close() {
	if o.reached == nil || o.copied < o.owed {
		return
	}
	select {
	case <-o.reached:
	default:
		close(o.reached)
	}
}
