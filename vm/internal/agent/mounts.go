package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/daybook-project/daybook/vm/internal/wire"
	"golang.org/x/sys/unix"
)

type mount struct{ fstype, target, data string }

func (m mount) do() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	err := unix.Mount(m.fstype, m.target, m.fstype, 0, m.data)
	if err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("cannot mount %s on %s: %w", m.fstype, m.target, err)
	}
	return nil
}

func mountAll(mounts ...mount) error {
	var errs []error
	for _, m := range mounts {
		errs = append(errs, m.do())
	}
	return errors.Join(errs...)
}

// mountEarly mounts the file systems that module loading needs. The root is in
// memory, so /tmp and /run are plain directories, and the host's files in them
// stay visible.
func mountEarly() error {
	err := mountAll(
		mount{"proc", "/proc", ""},
		mount{"sysfs", "/sys", ""},
		mount{"devtmpfs", "/dev", "mode=0755"},
		mount{"devpts", "/dev/pts", "mode=0620,ptmxmode=0666"},
		mount{"tmpfs", "/dev/shm", "mode=1777"},
	)
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if linkErr := os.Symlink(target, filepath.Join("/dev", name)); linkErr != nil && !errors.Is(linkErr, fs.ErrExist) {
			err = errors.Join(err, linkErr)
		}
	}
	return err
}

// mountUnlessSystemd does nothing with systemd, which mounts these itself.
func mountUnlessSystemd(setup wire.Setup) error {
	if setup.Systemd {
		return nil
	}
	return mountLate(setup.Cgroup)
}

// mountLate mounts the cgroups, and file systems that modules may provide.
func mountLate(cgroup int) error {
	err := mountAll(
		mount{"tracefs", "/sys/kernel/tracing", ""},
		mount{"debugfs", "/sys/kernel/debug", ""},
		mount{"bpf", "/sys/fs/bpf", "mode=0700"},
	)
	if cgroup == 1 {
		return errors.Join(err, mountCgroup1())
	}
	return errors.Join(err, mountCgroup2())
}

const cgroupRoot = "/sys/fs/cgroup"

// mountCgroup2 mounts the cgroup v2 hierarchy, and enables all its controllers
// for child cgroups.
func mountCgroup2() error {
	if err := (mount{"cgroup2", cgroupRoot, "nsdelegate,memory_recursiveprot"}).do(); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err != nil {
		return err
	}
	var errs []error
	for _, controller := range strings.Fields(string(text)) {
		if err := os.WriteFile(filepath.Join(cgroupRoot, "cgroup.subtree_control"), []byte("+"+controller), 0); err != nil {
			errs = append(errs, fmt.Errorf("cannot enable the controller %s: %w", controller, err))
		}
	}
	return errors.Join(errs...)
}

// mountCgroup1 mounts each controller in a directory of its name. A kernel may
// lack version 1 of some controllers, such as memory and cpuset: these are skipped.
func mountCgroup1() error {
	if err := (mount{"tmpfs", cgroupRoot, "mode=0755"}).do(); err != nil {
		return err
	}
	text, err := os.ReadFile("/proc/cgroups")
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range enabledControllers(string(text)) {
		target := filepath.Join(cgroupRoot, name)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		err := unix.Mount("cgroup", target, "cgroup", 0, name)
		if errors.Is(err, unix.EINVAL) {
			err = os.Remove(target)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot mount the cgroup v1 controller %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// enabledControllers reads /proc/cgroups: name, hierarchy, groups, enabled.
func enabledControllers(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 4 && !strings.HasPrefix(fields[0], "#") && fields[3] == "1" {
			names = append(names, fields[0])
		}
	}
	return names
}

// unmountPatience limits the wait for a busy mount: killed processes keep their
// files open until they have ended.
const unmountPatience = 5 * time.Second

// unmountDisks unmounts the file systems on disks, the latest first, so that
// kept disks are clean.
func unmountDisks() {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return
	}
	var targets []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 2 && strings.HasPrefix(fields[0], "/dev/") {
			targets = append(targets, unescape(fields[1]))
		}
	}
	end := time.Now().Add(unmountPatience)
	for i := len(targets) - 1; i >= 0; i-- {
		for unix.Unmount(targets[i], 0) == unix.EBUSY && time.Now().Before(end) {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// unescape decodes the escaped blanks in /proc/mounts.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
