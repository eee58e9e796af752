package control

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/internal/trusted"
)

// BusyError says that another process controls the device.
type BusyError struct {
	Device string
	// PID is the other process; 0 if not known.
	PID int
}

func (e *BusyError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("another process controls %s already", e.Device)
	}
	return fmt.Sprintf("process %d controls %s already; stop it first: kill %d", e.PID, e.Device, e.PID)
}

// Lock is held by the one process that controls a device. The kernel releases it
// when the process dies.
type Lock struct {
	state *os.File
	disk  *filelock.Lock
}

// AcquireLock takes the two locks of a device. One is a file in the state
// directory, which protects the state. The other one is a file in
// /run/daybook/locks, so that processes with different state directories exclude
// each other, too. It is taken if deviceDir, the disk's directory in sysfs, is not
// empty. Its name has the disk's sequence number, because another disk can get the
// device's name later. Only root can open either.
//
// Earlier versions locked deviceDir itself, which every user can do. That lock is
// taken, too; it is respected only if a Daybook holds it. If another process holds
// one of the locks, the error is a *BusyError.
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
	if errors.Is(err, unix.EROFS) {
		err = fmt.Errorf("%w; choose another state_dir", err)
	}
	return nil, fmt.Errorf("cannot lock %s: %w", device, err)
}

// takeState locks a file of the state directory. The file is never removed: earlier
// versions lock it, too, and would not notice its removal.
func (l *Lock) takeState(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	l.state = file
	// It stays there, so it can have been made readable since, as by chmod -R. What others could
	// have written is refused.
	if trusted.File.Check(file) == nil {
		_ = file.Chmod(0o600)
	}
	if err := filelock.CheckPrivate(file); err != nil {
		if why := trusted.PrivateFile.Check(file); why != nil && !keepsModes(filepath.Dir(path)) {
			err = fmt.Errorf("%s is not used as a lock: %w; its file system keeps no owners and modes, as vfat and CIFS: choose another state_dir", path, why)
		}
		return err
	}
	if err := filelock.TryLockByPID(file); err != nil {
		return err
	}
	if err := filelock.WritePID(file); err != nil {
		return fmt.Errorf("cannot write to the state directory: %w; make room or choose another state_dir", err)
	}
	return nil
}

// keepsModes says whether a new file in a directory can be closed to other users.
func keepsModes(dir string) bool {
	file, err := os.CreateTemp(dir, "control-*.mode")
	if err != nil {
		return true // not known
	}
	defer func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}()
	return trusted.PrivateFile.Check(file) == nil
}

// takeDisk takes the lock of the disk that all processes of the host share.
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

// diskLockName distinguishes a disk from every other disk since the start of the
// host. Kernels before 5.15 have no sequence numbers; there it is the device
// number, which another disk can get later.
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

// Release releases the locks.
func (l *Lock) Release() {
	l.disk.Release()
	if l.state != nil {
		l.state.Close()
	}
	l.state = nil
}
