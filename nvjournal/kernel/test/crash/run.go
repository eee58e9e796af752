package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
)

// markName is the attribute that distinguishes one setting of it from another.
const markName = "user.mark"

// threadDirectory is the directory of a thread's script.
func threadDirectory(dir string, thread int) string {
	return filepath.Join(dir, "thread"+strconv.Itoa(thread))
}

// Run runs the scripts of some threads below dir, which is empty, each to its count
// of operations; 0 means without end. told is called with a thread and its count
// when all operations up to it are permanent, by one thread at a time.
func Run(dir string, script Script, threads, count int, told func(thread, count int)) error {
	unix.Umask(0)
	for thread := range threads {
		for _, name := range directories {
			if err := os.MkdirAll(filepath.Join(threadDirectory(dir, thread), name), 0o755); err != nil {
				return err
			}
		}
	}
	// The scripts' directories are permanent before they start.
	if err := atomicfile.SyncFileSystem(dir); err != nil {
		return err
	}
	var mu sync.Mutex
	errs := make(chan error, threads)
	for thread := range threads {
		go func() {
			errs <- runThread(threadDirectory(dir, thread), newModel(script, thread), count, func(count int) {
				mu.Lock()
				defer mu.Unlock()
				told(thread, count)
			})
		}()
	}
	for range threads {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

func runThread(dir string, m *model, count int, told func(count int)) error {
	r := &runner{dir: dir}
	defer r.letGo()
	for count == 0 || m.count < count {
		o := m.next()
		if err := r.do(o); err != nil {
			return fmt.Errorf("operation %d in %s: %s: %w", m.count, dir, o, err)
		}
		if o.synced() {
			told(m.count)
		}
	}
	return nil
}

// runner applies operations to a directory.
type runner struct {
	dir     string
	removed *os.File // a file without a name, which is open
}

func (r *runner) letGo() {
	if r.removed != nil {
		r.removed.Close()
	}
}

func (r *runner) path(name string) string { return filepath.Join(r.dir, name) }

func (r *runner) do(o operation) error {
	path := r.path(o.name)
	switch o.verb {
	case create, createAndSyncDirectory:
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, os.FileMode(o.mode))
		if err != nil {
			return err
		}
		if err := file.Close(); err != nil || o.verb == create {
			return err
		}
		return syncPath(filepath.Dir(path))
	case mkdir:
		return os.Mkdir(path, os.FileMode(o.mode))
	case symlink:
		return os.Symlink(target(o.id), path)
	case hardLink:
		return os.Link(path, r.path(o.to))
	case remove:
		return unix.Unlink(path)
	case rmdir:
		return unix.Rmdir(path)
	case rename:
		return unix.Rename(path, r.path(o.to))
	case chmod:
		return unix.Chmod(path, o.mode)
	case setMark:
		return unix.Setxattr(path, markName, []byte(strconv.Itoa(o.mark)), 0)
	case truncate:
		return os.Truncate(path, o.bytes)
	case orphan:
		return r.orphan(path)
	}
	return appendContent(path, o)
}

func syncPath(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}

func appendContent(path string, o operation) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	b := make([]byte, o.bytes)
	for i := range b {
		b[i] = content(o.id, o.offset+int64(i))
	}
	if _, err := file.Write(b); err != nil {
		return err
	}
	if o.verb == appendAndSync {
		return file.Sync()
	}
	return nil
}

// orphan removes a file and writes to it while it is open, until the next one: a
// crash finds it in the list of orphans.
func (r *runner) orphan(path string) error {
	r.letGo()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	r.removed = file
	if err := unix.Unlink(path); err != nil {
		return err
	}
	_, err = file.WriteAt(make([]byte, maxAppendBytes), maxFileBytes)
	return err
}
