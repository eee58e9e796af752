package dockervolume

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/volume"
)

// activatedFD is the first descriptor that systemd passes (sd_listen_fds(3)).
const activatedFD = 3

// activated returns the socket that systemd opened for this process; nil if it
// was not started by socket activation.
func activated() (net.Listener, error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	if count := os.Getenv("LISTEN_FDS"); count != "1" {
		return nil, fmt.Errorf("systemd passed %q sockets, want 1: see daybook-docker.socket", count)
	}
	// Programs that we start must not inherit the variables, nor the
	// descriptor, which the listener has duplicated.
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	file := os.NewFile(activatedFD, "systemd's socket")
	listener, err := net.FileListener(file)
	err = errors.Join(err, file.Close())
	if err != nil {
		return nil, fmt.Errorf("the socket that systemd passed: %w", err)
	}
	if _, is := listener.(*net.UnixListener); !is {
		return nil, errors.Join(errors.New("the socket that systemd passed is not a unix socket"), listener.Close())
	}
	return listener, nil
}

// maxSocketBytes is the maximum length of a unix socket's path (unix(7)).
const maxSocketBytes = 107

// listen makes the socket, accessible by root only. It replaces the socket of a
// dead daemon. The error wraps ErrBusy if a daemon answers on it.
func listen(path string) (*net.UnixListener, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if len(path) > maxSocketBytes {
		return nil, fmt.Errorf("%w socket %s: %d bytes long, at most %d", volume.ErrInvalid, path, len(path), maxSocketBytes)
	}
	directory := filepath.Dir(path)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the socket's directory: %w", err)
	}
	lock, err := lockSockets(directory)
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	if err := removeDead(path); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot make the socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// lockPatience is how long a daemon waits for another one that is also
// starting.
const lockPatience = 10 * time.Second

// lockSockets prevents two daemons that start at once from removing each
// other's socket. All users may open the directory, and so lock it, as earlier
// versions did. The error wraps ErrBusy if another does not release it.
func lockSockets(directory string) (*filelock.Lock, error) {
	path, err := filelock.RunPath("docker-sockets")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	lock, err := filelock.Await(ctx, func() (*filelock.Lock, error) { return filelock.TakeBoth(path, directory) })
	if ctx.Err() != nil && lock == nil {
		err = fmt.Errorf("the directory of sockets is %w: %w", volume.ErrBusy, err)
	}
	return lock, err
}

// connectPatience is the time-out for a slow daemon.
const connectPatience = time.Second

// removeDead removes a socket on which nobody listens.
func removeDead(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("cannot make the socket %s: something else has that name", path)
	}
	connection, err := net.DialTimeout("unix", path, connectPatience)
	if err == nil {
		_ = connection.Close()
	}
	if err == nil || !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("the socket %s is %w: another daemon answers there; stop it, or choose another name with --socket", path, volume.ErrBusy)
	}
	return os.Remove(path)
}
