// Package filelock takes locks that other users cannot take. A flock(2) needs
// only a descriptor, so any user who may open a file for reading can hold its
// lock and block a daemon of root. Therefore a lock here is on a file that only
// its owner can open. The kernel releases it when the process ends, also after
// SIGKILL.
package filelock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/internal/trusted"
)

// HeldError means that another process holds a lock.
type HeldError struct {
	Path string
	// PID is the process that took it; 0 if it is unknown.
	PID int
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is locked by another process", e.Path)
	}
	return fmt.Sprintf("%s is locked by process %d", e.Path, e.PID)
}

// Lock is a held lock.
type Lock struct {
	file *os.File
	path string
	// earlier is also locked; nil if it is not.
	earlier *os.File
}

// Take locks the file at path without waiting. It creates a missing file with
// mode 0600; Release removes it. A file that others can open, or that belongs
// to another user, is rejected. The error is a *HeldError if another process
// holds the lock. Processes that ask for its holder at the same time ([Holder]) do not
// matter, unless one takes longer than a second.
func Take(path string) (*Lock, error) {
	for deadline := time.Now().Add(askPatience); ; {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, fmt.Errorf("cannot lock: %w", err)
		}
		l, err := take(file, path, deadline)
		if l != nil || err != nil {
			return l, err
		}
	}
}

// take returns neither lock nor error if the file was removed or replaced meanwhile, or
// if, before the deadline, processes only ask for its holder.
func take(file *os.File, path string, deadline time.Time) (*Lock, error) {
	err := CheckPrivate(file)
	if err == nil {
		err = TryLockByPID(file)
	}
	var held *HeldError
	if errors.As(err, &held) && time.Now().Before(deadline) {
		if shared, _ := tryShared(file); shared {
			err = file.Close()
			time.Sleep(askPause)
			return nil, err
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if !isNamed(file, path) {
		return nil, file.Close()
	}
	// The lock is valid without the PID, for example on a full disk.
	_ = WritePID(file)
	return &Lock{file: file, path: path}, nil
}

// Take waits at most askPatience for processes that only ask for the holder. Each of them
// needs a few microseconds, unless the host is busy. askPause is between two attempts.
const (
	askPatience = time.Second
	askPause    = time.Millisecond
)

// Release removes the file and releases the lock.
func (l *Lock) Release() {
	if l == nil || l.file == nil {
		return
	}
	if l.earlier != nil {
		_ = l.earlier.Close()
	}
	_ = os.Remove(l.path) // while it is locked, it is ours
	_ = l.file.Close()
	l.file = nil
}

// Await calls take until it returns anything other than a *HeldError, or ctx
// ends; its error then wraps both.
func Await(ctx context.Context, take func() (*Lock, error)) (*Lock, error) {
	for {
		l, err := take()
		var held *HeldError
		if !errors.As(err, &held) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(awaitPause):
		}
	}
}

// awaitPause is the pause between two attempts.
const awaitPause = 10 * time.Millisecond

// TryLock locks an open file without waiting. It does not check who else can
// open it. The error is a *HeldError without a PID if another process holds the
// lock.
func TryLock(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return &HeldError{Path: file.Name()}
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("cannot lock %s: %w", file.Name(), err)
		}
	}
}

// TryLockByPID is [TryLock] of a file with the PID of its holder, which is then in the
// *HeldError.
func TryLockByPID(file *os.File) error {
	err := TryLock(file)
	var held *HeldError
	if errors.As(err, &held) {
		held.PID = writtenPID(file)
	}
	return err
}

// WritePID makes the PID of this process the content of a locked file. The PID is only
// for messages.
func WritePID(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

// rootDir contains the locks of root's processes.
const rootDir = "/run/daybook/locks"

// RunPath returns the path of a lock that exists until the next reboot: in
// /run/daybook/locks for root, and in a directory of their own for other users.
// It makes a missing directory; one that others can open is rejected.
func RunPath(name string) (string, error) {
	dir := rootDir
	if os.Geteuid() != 0 {
		if dir = os.Getenv("XDG_RUNTIME_DIR"); dir == "" {
			dir = filepath.Join(os.TempDir(), "daybook-"+strconv.Itoa(os.Geteuid()))
		}
		dir = filepath.Join(dir, "daybook-locks")
	}
	if err := makePrivate(dir); err != nil {
		return "", fmt.Errorf("cannot use the directory of locks: %w", err)
	}
	return filepath.Join(dir, name), nil
}

func makePrivate(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return unusable(dir, trusted.PrivateDirectory.CheckPath(dir))
}

// CheckPrivate rejects an open file that is no regular one, belongs to another user, or that
// others can open.
func CheckPrivate(file *os.File) error {
	return unusable(file.Name(), trusted.PrivateFile.Check(file))
}

// unusable adds to the reason why a lock, or the directory of locks, is not used what is to be
// done. Another error, or none, stays as it is.
func unusable(path string, err error) error {
	var refused *trusted.Error
	if !errors.As(err, &refused) {
		return err
	}
	remedy := "remove it"
	if refused.Reason == trusted.OpenToOthers {
		remedy = "run: chmod go= " + safetext.Word(path)
	}
	return fmt.Errorf("%s is not used as a lock: %w; %s", path, err, remedy)
}

// writtenPID reads the PID that WritePID wrote; 0 if there is none.
func writtenPID(file *os.File) int {
	text, _ := io.ReadAll(io.NewSectionReader(file, 0, 32))
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil || pid < 1 {
		return 0
	}
	return pid
}
