// Package agent is the guest's init: it mounts what a system needs, loads the
// modules of its setup, makes stable names for disks and persistent memory, and
// then runs the commands that the host sends over the virtio-serial port.
//
// It is the same program as the host's ([RunIfAsked]), so no other program is
// built or embedded for the guest.
package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/vm/internal/wire"
)

// Asked reports whether this process was started as a guest's init.
func Asked() bool { return os.Getpid() == 1 && os.Getenv(wire.AgentVariable) == "1" }

// RunIfAsked becomes the guest's init, or the service that runs commands under
// systemd, if this process was started as such, and then never returns.
func RunIfAsked() {
	if os.Getenv(wire.AgentVariable) == wire.AgentService {
		fmt.Fprintln(os.Stderr, "daybook-vm: the service ended:", runService())
		os.Exit(1)
	}
	if !Asked() {
		return
	}
	err := run()
	// There is only the console left for the error; the host reads it.
	fmt.Fprintln(os.Stderr, "daybook-vm: the guest's init ended:", err)
	powerOff()
	select {}
}

func run() error {
	setup, setupErr := setUp()
	if setup.Systemd && setupErr == nil {
		// It returns only after an error.
		setupErr = startSystemd(setup)
	}
	port, err := openPort()
	if err != nil {
		return errors.Join(setupErr, err)
	}
	greeting := wire.Greeting{Release: kernel.Release()}
	if setupErr != nil {
		greeting.Error = setupErr.Error()
	}
	server := newServer(port)
	if err := server.send(wire.Hello, 0, greeting); err != nil {
		return err
	}
	return server.serve()
}

// setUp sets the system up. It continues after most errors, so that the host
// gets all of them.
func setUp() (wire.Setup, error) {
	err := mountEarly()
	text, readErr := os.ReadFile(wire.SetupPath)
	var setup wire.Setup
	if readErr == nil {
		readErr = json.Unmarshal(text, &setup)
	}
	if readErr != nil {
		return setup, errors.Join(err, readErr)
	}
	return setup, errors.Join(err,
		environment(setup.Hostname),
		loadModules(setup.Modules),
		mountUnlessSystemd(setup),
		linkDevices(setup.Disks, setup.Pmem),
	)
}

// deviceWait limits the wait for a device to appear; an emulated machine
// on a busy host is slow.
const deviceWait = 30 * time.Second

// waitFor calls found until it returns true.
func waitFor(what string, found func() bool) error {
	for end := time.Now().Add(deviceWait); ; time.Sleep(5 * time.Millisecond) {
		if found() {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s did not appear in %s", what, deviceWait)
		}
	}
}

// openPort opens the virtio-serial port to the host.
func openPort() (*os.File, error) {
	path := ""
	err := waitFor("the virtio-serial port "+wire.PortName, func() bool {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err == nil && strings.TrimSpace(string(text)) == wire.PortName {
				path = "/dev/" + filepath.Base(filepath.Dir(name))
				_, err := os.Stat(path)
				return err == nil
			}
		}
		return false
	})
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func powerOff() {
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}
