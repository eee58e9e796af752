package control

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// BusyError says that another process controls the device.
type BusyError struct {
	Device string
	// PID of the other process; 0 where it cannot be told.
	PID int
}

func (e *BusyError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("cannot control %s: another process controls it already", e.Device)
	}
	return fmt.Sprintf("cannot control %s: process %d controls it already; stop it first: kill %d", e.Device, e.PID, e.PID)
}

// Lock is held by the one process that controls a device. The kernel takes it
// back when the process dies, however it dies.
type Lock struct{ files []*os.File }

// AcquireLock takes the lock of a device. There are two: a file in the state
// directory, which protects the state, and, where deviceDir (the disk's
// directory in sysfs) is not empty, that directory itself, so that two
// processes with different state directories exclude each other too. The
// error is a *BusyError if another process holds it.
func AcquireLock(stateDir, device, deviceDir string) (*Lock, error) {
	if err := checkDevice(device); err != nil {
		return nil, err
	}
	if err := CheckStateDir(stateDir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the state directory: %w", err)
	}
	lock := &Lock{}
	path := filepath.Join(stateDir, "control-"+device+".lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", device, err)
	}
	lock.files = append(lock.files, file)
	if err := lock.take(file, device, writtenHolder); err != nil {
		return nil, err
	}
	pid := fmt.Appendf(nil, "%d\n", os.Getpid())
	err = file.Truncate(0)
	if err == nil {
		_, err = file.WriteAt(pid, 0)
	}
	if err != nil {
		lock.Release()
		return nil, fmt.Errorf("cannot write to the state directory: %w; make room or choose another state_dir", err)
	}
	if deviceDir != "" {
		directory, err := os.Open(deviceDir)
		if err != nil {
			lock.Release()
			return nil, fmt.Errorf("cannot lock %s: %w", device, err)
		}
		lock.files = append(lock.files, directory)
		if err := lock.take(directory, device, kernelHolder); err != nil {
			return nil, err
		}
	}
	return lock, nil
}

func (l *Lock) take(file *os.File, device string, holder func(*os.File) int) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return nil
	}
	pid := holder(file)
	l.Release()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return &BusyError{Device: device, PID: pid}
	}
	return fmt.Errorf("cannot lock %s: %w", device, err)
}

// Release gives the lock back. The file stays: to remove it would let two
// processes lock two files of one name.
func (l *Lock) Release() {
	for _, file := range l.files {
		file.Close()
	}
	l.files = nil
}

// writtenHolder reads who wrote his number into the lock file.
func writtenHolder(file *os.File) int {
	text, _ := io.ReadAll(io.NewSectionReader(file, 0, 32))
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil || pid < 1 {
		return 0
	}
	return pid
}

// kernelHolder asks the kernel who holds the lock on an open file.
func kernelHolder(file *os.File) int {
	var st unix.Stat_t
	if unix.Fstat(int(file.Fd()), &st) != nil {
		return 0
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer locks.Close()
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for scanner := bufio.NewScanner(locks); scanner.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 1234 00:16:5678 0 EOF
		fields := strings.Fields(scanner.Text())
		if len(fields) >= 6 && fields[1] == "FLOCK" && fields[5] == want {
			pid, _ := strconv.Atoi(fields[4])
			return max(pid, 0)
		}
	}
	return 0
}
