package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/vm/internal/wire"
)

// newRoot is the first mount point of the root file system with systemd.
const newRoot = "/newroot"

// agentUnit runs the agent under systemd. Commands are its children: they may
// make cgroups below its own (Delegate), and have no resource limits.
const agentUnit = `[Unit]
Description=Runs commands for the host

[Service]
ExecStart=` + wire.AgentPath + `
Environment=` + wire.AgentVariable + `=` + wire.AgentService + `
Delegate=yes
KillMode=mixed
TasksMax=infinity
LimitNOFILE=infinity
LimitMEMLOCK=infinity
OOMScoreAdjust=-900
`

// startSystemd switches to the root file system and executes systemd. It returns
// only after an error.
func startSystemd(setup wire.Setup) error {
	if err := mountRoot(); err != nil {
		return err
	}
	if err := installAgent(); err != nil {
		return err
	}
	if err := switchRoot(); err != nil {
		return err
	}
	const systemd = "/usr/lib/systemd/systemd"
	return fmt.Errorf("cannot execute %s: %w", systemd, unix.Exec(systemd, []string{systemd}, []string{"PATH=" + wire.Path, "TERM=linux"}))
}

// mountRoot mounts the root file system, and the modules in it.
func mountRoot() error {
	if err := linkWhenThere("root", func() string { return diskBySerial(wire.RootSerial) }); err != nil {
		return err
	}
	if err := os.MkdirAll(newRoot, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(filepath.Join(wire.DeviceDir, "root"), newRoot, "ext4", unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("cannot mount the root file system: %w", err)
	}
	if err := unix.Mount("tmpfs", filepath.Join(newRoot, "run"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("cannot mount /run: %w", err)
	}
	modules := filepath.Join(newRoot, "usr/lib/modules", kernel.Release())
	if err := os.MkdirAll(modules, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(wire.ModulesTag, modules, "9p", unix.MS_RDONLY, "trans=virtio,version=9p2000.L,cache=loose,msize=262144"); err != nil {
		return fmt.Errorf("cannot mount the modules: %w", err)
	}
	return nil
}

// installAgent copies the agent, its unit and the given files to the root file
// system.
func installAgent() error {
	units := filepath.Join(newRoot, "run/systemd/system")
	wants := filepath.Join(units, "multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return err
	}
	err := errors.Join(
		os.WriteFile(filepath.Join(units, wire.AgentUnit), []byte(agentUnit), 0o644),
		os.Symlink("../"+wire.AgentUnit, filepath.Join(wants, wire.AgentUnit)),
		copyTree(wire.AgentPath, newRoot, wire.AgentPath),
		// udev keeps these links in /dev, because it did not make them.
	)
	if _, statErr := os.Stat(wire.GivenDir); statErr == nil {
		err = errors.Join(err, copyTree(wire.GivenDir, newRoot, "/"))
	}
	return err
}

// copyTree copies a file or directory to a path in a root. It does not replace a
// shared library of the root, because the root's programs need their own version.
func copyTree(from, root, to string) error {
	return filepath.WalkDir(from, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, at)
		if err != nil {
			return err
		}
		target := filepath.Join(root, to, rel)
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.IsDir() {
			if _, err := os.Stat(target); err == nil {
				return nil
			}
			return os.MkdirAll(target, info.Mode().Perm())
		}
		if _, err := os.Lstat(target); err == nil {
			if strings.Contains(filepath.Base(target), ".so") {
				return nil
			}
			if err := os.Remove(target); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			name, err := os.Readlink(at)
			if err != nil {
				return err
			}
			return os.Symlink(name, target)
		}
		return copyFile(at, target, info.Mode().Perm())
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// switchRoot switches to the root file system. It empties the old root, which is
// in memory.
func switchRoot() error {
	for _, name := range []string{"/dev", "/proc", "/sys"} {
		if err := unix.Mount(name, newRoot+name, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("cannot move %s: %w", name, err)
		}
	}
	for _, name := range []string{"/usr", "/lib", "/etc", "/var"} {
		_ = os.RemoveAll(name)
	}
	if err := os.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("cannot move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return os.Chdir("/")
}

// runService runs commands for the host under systemd, once the system is up.
func runService() error {
	port, err := openPort()
	if err != nil {
		return err
	}
	greeting := wire.Greeting{Release: kernel.Release()}
	if err := waitUp(); err != nil {
		greeting.Error = err.Error()
	}
	server := newServer(port)
	server.powerOff = func() { _ = exec.Command("systemctl", "poweroff", "--no-wall").Run() }
	if err := server.send(wire.Hello, 0, greeting); err != nil {
		return err
	}
	return server.serve()
}

// waitUp waits until systemd has started all units of the boot.
func waitUp() error {
	state, err := exec.Command("systemctl", "is-system-running", "--wait").Output()
	if err == nil {
		return nil
	}
	failed, _ := exec.Command("systemctl", "list-units", "--failed", "--plain", "--no-legend", "--no-pager").Output()
	return fmt.Errorf("the system is %s: %w; failed units:\n%s", strings.TrimSpace(string(state)), err, failed)
}
