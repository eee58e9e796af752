package control

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/filelock"
)

// BusyError says that another process controls the device.
type BusyError struct {
	Device string
	// PID of the other process; 0 where it is not known.
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
type Lock struct {
	state *os.File
	disk  *filelock.Lock
}

// AcquireLock takes the locks of a device. There are two: a file in the state
// directory, which protects the state, and, where deviceDir (the disk's
// directory in sysfs) is not empty, a file in /run/daybook/locks, so that two
// processes with different state directories exclude each other too. That one
// is named after the disk's sequence number: a device's name can be another
// disk's by tomorrow. Only root can open either. Earlier versions locked
// deviceDir itself, which every user can: that lock is held as well, and
// respected only if it is a Daybook's. The error is a *BusyError if another
// process holds one.
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
	err := lock.takeState(filepath.Join(stateDir, "control-"+device+".lock"))
	if err == nil && deviceDir != "" {
		err = lock.takeDisk(deviceDir)
	}
	if err == nil {
		return lock, nil
	}
	lock.Release()
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return nil, &BusyError{Device: device, PID: held.PID}
	}
	return nil, fmt.Errorf("cannot lock %s: %w", device, err)
}

// takeState locks a file of the state directory. It stays: earlier versions,
// which would not notice its removal, lock it too.
func (l *Lock) takeState(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	l.state = file
	err = filelock.TryLock(file)
	var held *filelock.HeldError
	if errors.As(err, &held) {
		held.PID = writtenHolder(file)
	}
	if err != nil {
		return err
	}
	err = file.Truncate(0)
	if err == nil {
		_, err = file.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if err != nil {
		return fmt.Errorf("cannot write to the state directory: %w; make room or choose another state_dir", err)
	}
	return nil
}

// takeDisk takes the disk's lock of the whole host.
func (l *Lock) takeDisk(deviceDir string) error {
	name, err := diskLockName(deviceDir)
	if err != nil {
		return err
	}
	path, err := filelock.RunPath(name)
	if err != nil {
		return err
	}
	l.disk, err = filelock.TakeBoth(path, deviceDir)
	return err
}

// diskLockName distinguishes a disk from every other that the host has had since its
// start. Kernels before 5.15 have no sequence numbers; there it is the device
// number, which later disks get again.
func diskLockName(deviceDir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(deviceDir, "diskseq"))
	if err == nil {
		return "disk-" + string(bytes.TrimSpace(text)), nil
	}
	if text, err = os.ReadFile(filepath.Join(deviceDir, "dev")); err != nil {
		return "", err
	}
	return "disk-" + string(bytes.TrimSpace(text)), nil
}

// Release gives the locks back.
func (l *Lock) Release() {
	l.disk.Release()
	if l.state != nil {
		l.state.Close()
	}
	l.state = nil
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
