package agent

import (
	"errors"
	"fmt"
	"os"

	"github.com/daybook-project/daybook/vm/internal/wire"
	"golang.org/x/sys/unix"
)

// maxOpenFiles is the limit on open files, hard and soft, as systemd sets it.
const maxOpenFiles = 1 << 19

// environment sets the hostname and limits, and brings the loopback up.
func environment(hostname string) error {
	var errs []error
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		errs = append(errs, fmt.Errorf("cannot set the hostname %s: %w", hostname, err))
	}
	if err := loopbackUp(); err != nil {
		errs = append(errs, fmt.Errorf("cannot bring the loopback up: %w", err))
	}
	limit := unix.Rlimit{Cur: maxOpenFiles, Max: maxOpenFiles}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		errs = append(errs, fmt.Errorf("cannot raise the limit on open files: %w", err))
	}
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited); err != nil {
		errs = append(errs, fmt.Errorf("cannot lift the limit on locked memory: %w", err))
	}
	return errors.Join(errs...)
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// loadModules loads modules in this order: each module follows its
// dependencies.
func loadModules(paths []string) error {
	var errs []error
	for _, path := range paths {
		if err := loadModule(path); err != nil {
			errs = append(errs, fmt.Errorf("cannot load the module %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

func loadModule(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	err = unix.FinitModule(int(file.Fd()), "", 0)
	if errors.Is(err, unix.EEXIST) {
		return nil // the kernel has requested it in the meantime
	}
	return err
}

// childEnvironment is the environment of commands, without the host's variables.
func childEnvironment() []string {
	return []string{"PATH=" + wire.Path, "HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/sh", "TERM=dumb", "LANG=C"}
}
