package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/cgroup"
)

// cgroupEvents says when cgroups of pods and of their containers are made or removed. inotify
// reports both in cgroupfs, because they are directories. It reports nothing of what happens
// below the cgroup of a container.
type cgroupEvents struct {
	tree *cgroup.Tree
	// wake gets a value after a change.
	wake    chan struct{}
	changed atomic.Bool
	file    *os.File

	mu sync.Mutex
	// parents are the cgroups in which the kubelet makes those of pods, by the roots that
	// are watched.
	parents map[string]bool
	// watched are the cgroups by watch descriptor, and watches the reverse.
	watched map[int32]string
	watches map[string]int32
	// incomplete says why events can be missed; nil: they cannot.
	incomplete error
	// deaf makes it miss all events, for tests.
	deaf atomic.Bool
}

// errLost means that the kernel had more events than its queue holds.
var errLost = errors.New("events of cgroups were lost")

const eventMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_ONLYDIR

// watchCgroups begins to watch. With an error the watch may be nil, or incomplete.
func watchCgroups(tree *cgroup.Tree, roots []string) (*cgroupEvents, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot watch cgroups: %w", err)
	}
	e := &cgroupEvents{tree: tree, wake: make(chan struct{}, 1), file: os.NewFile(uintptr(fd), "inotify"), watched: map[int32]string{}, watches: map[string]int32{}}
	err = e.cover(roots)
	go e.read()
	return e, err
}

// close ends the watch.
func (e *cgroupEvents) close() error {
	if e == nil {
		return nil
	}
	return e.file.Close()
}

// take says whether something has changed since the last call.
func (e *cgroupEvents) take() bool { return e != nil && e.changed.Swap(false) }

// woken has a value after a change.
func (e *cgroupEvents) woken() <-chan struct{} {
	if e == nil {
		return nil
	}
	return e.wake
}

// covers says whether what happens in the cgroup of a pod is reported.
func (e *cgroupEvents) covers(at string) bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, watched := e.watches[at]
	return watched && e.incomplete == nil
}

// sees says whether new pods are reported.
func (e *cgroupEvents) sees() bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for parent := range e.parents {
		if _, watched := e.watches[parent]; watched {
			return e.incomplete == nil
		}
	}
	return false
}

// cover watches all pods below the kubelet's roots, and no longer what was removed. The
// events do that by themselves; this is for the start, new roots and lost events. The error
// says why events can be missed.
func (e *cgroupEvents) cover(roots []string) error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.parents, e.incomplete = map[string]bool{}, nil
	for _, root := range roots {
		for _, c := range classes {
			for _, pod := range candidates(root, c.component, "any") {
				e.parents[path.Dir(pod)] = true
			}
		}
	}
	seen := map[string]bool{}
	for parent := range e.parents {
		seen[parent] = true
		for _, child := range e.watchParent(parent) {
			seen[child] = true
		}
	}
	for at := range e.watches {
		if !seen[at] {
			e.unwatch(at)
		}
	}
	return e.incomplete
}

// watchParent watches a cgroup and the pods in it, which it returns.
func (e *cgroupEvents) watchParent(parent string) (pods []string) {
	e.watch(parent)
	entries, err := os.ReadDir(e.dir(parent))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		e.incomplete = err
	}
	for _, entry := range entries {
		if child := path.Join(parent, entry.Name()); entry.IsDir() && !e.parents[child] {
			e.watch(child)
			pods = append(pods, child)
		}
	}
	return pods
}

func (e *cgroupEvents) dir(at string) string { return e.tree.Root() + at }

// watch watches one cgroup. The path may have been that of another one.
func (e *cgroupEvents) watch(at string) {
	var number int
	err := e.control(func(fd int) (err error) {
		number, err = unix.InotifyAddWatch(fd, e.dir(at), eventMask)
		return err
	})
	if errors.Is(err, unix.ENOENT) {
		e.unwatch(at)
		return
	}
	if err != nil {
		e.incomplete = fmt.Errorf("cannot watch cgroup %s: %w", at, err) // such as too many watches
		return
	}
	if old, known := e.watches[at]; known && old != int32(number) {
		e.unwatch(at)
	}
	e.watches[at], e.watched[int32(number)] = int32(number), at
}

// control calls f with the descriptor, which stays open meanwhile.
func (e *cgroupEvents) control(f func(fd int) error) error {
	conn, err := e.file.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = conn.Control(func(fd uintptr) { failure = f(int(fd)) })
	return errors.Join(err, failure)
}

// unwatch removes the watch of a cgroup. The kernel does not do so when a cgroup is removed.
func (e *cgroupEvents) unwatch(at string) {
	number, known := e.watches[at]
	if !known {
		return
	}
	_ = e.control(func(fd int) error { // it may be none any more
		_, err := unix.InotifyRmWatch(fd, uint32(number))
		return err
	})
	delete(e.watched, number)
	delete(e.watches, at)
}

// read reads events until the file is closed.
func (e *cgroupEvents) read() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := e.file.Read(buffer)
		if err != nil {
			e.mu.Lock()
			e.incomplete = err
			e.mu.Unlock()
			return
		}
		if e.deaf.Load() {
			continue
		}
		e.mu.Lock()
		changed := e.handle(buffer[:n])
		e.mu.Unlock()
		if changed {
			e.changed.Store(true)
			select {
			case e.wake <- struct{}{}:
			default:
			}
		}
	}
}

// handle enters events: see inotify(7).
func (e *cgroupEvents) handle(events []byte) (changed bool) {
	for len(events) >= unix.SizeofInotifyEvent {
		number := int32(binary.NativeEndian.Uint32(events))
		mask := binary.NativeEndian.Uint32(events[4:])
		length := int(binary.NativeEndian.Uint32(events[12:]))
		name := strings.TrimRight(string(events[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+length]), "\x00")
		events = events[unix.SizeofInotifyEvent+length:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			e.incomplete, changed = errLost, true
			continue
		}
		parent, known := e.watched[number]
		if !known || mask&unix.IN_ISDIR == 0 {
			continue
		}
		changed = true
		switch at := path.Join(parent, name); {
		case mask&unix.IN_DELETE != 0:
			e.unwatch(at)
		case e.parents[at]:
			e.watchParent(at)
		case e.parents[parent]:
			e.watch(at)
		}
	}
	return changed
}
