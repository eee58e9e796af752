package agent

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// mountTable has the mounts of the host. It lists them again after a change, which poll(2) of
// mountinfo reports: with many pods the list is long.
type mountTable struct {
	read  func() ([]blockdev.Mount, error)
	pause time.Duration
	// files are open files of mountinfo, of this process and of the host's first one.
	files []unix.PollFd
	// unwatched: they could not be opened.
	unwatched bool

	mounts []blockdev.Mount
	listed time.Time // zero: not listed
}

// mountFiles are files with an event for each change.
var mountFiles = []string{"/proc/self/mountinfo", "/proc/1/mountinfo"}

func newMountTable() mountTable { return mountTable{read: blockdev.MountsOfHost, pause: listPause} }

// list lists the mounts. The caller must not change them.
func (t *mountTable) list(now time.Time) ([]blockdev.Mount, error) {
	// Changes after this belong to the next call.
	changed := t.changed()
	if !changed && !t.listed.IsZero() && now.Sub(t.listed) < t.pause {
		return t.mounts, nil
	}
	mounts, err := t.read()
	if err != nil {
		t.mounts, t.listed = nil, time.Time{}
		return nil, err
	}
	t.mounts, t.listed = mounts, now
	return mounts, nil
}

// changed says whether there was a change since the last call, or may have been.
func (t *mountTable) changed() bool {
	if t.unwatched {
		return true
	}
	if t.files == nil {
		t.open()
		return true
	}
	n, err := unix.Poll(t.files, 0)
	if err != nil {
		return true
	}
	for _, file := range t.files {
		if n > 0 && file.Revents&(unix.POLLPRI|unix.POLLERR|unix.POLLNVAL) != 0 {
			return true
		}
	}
	return false
}

// open opens the files. The Go runtime must not know them: it would poll them, too, and take
// the events.
func (t *mountTable) open() {
	for _, path := range mountFiles {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.close()
			t.unwatched = true
			return
		}
		t.files = append(t.files, unix.PollFd{Fd: int32(fd), Events: unix.POLLPRI})
	}
}

func (t *mountTable) close() {
	for _, file := range t.files {
		_ = unix.Close(int(file.Fd))
	}
	t.files = nil
}
