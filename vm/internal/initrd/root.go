package initrd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/daybook-project/daybook/vm/internal/wire"
)

// Root describes the content of the guest's root file system.
type Root struct {
	Agent     string // the program that becomes the guest's init
	Busybox   string // the host's static busybox
	Arch      string // the architecture of the guest
	Tools     string // the root of its tools with busybox, "" if it runs the host's programs
	Release   string // of the kernel
	ModuleDir string // lib/modules/RELEASE, with modules.dep
	Modules   []string
	Give      []Given
	// Setup is the agent's setup; Write fills in its Modules.
	Setup wire.Setup
}

// Write writes the root as a cpio archive, and returns its size in bytes.
func (r Root) Write(w io.Writer) (int64, error) {
	t := make(tree)
	if err := checkRegular(r.Agent); err != nil {
		return 0, fmt.Errorf("cannot use this program as the guest's init: %w", err)
	}
	index, err := readModuleIndex(r.ModuleDir)
	if err != nil {
		return 0, err
	}
	modules, err := index.choose(r.Modules)
	if err != nil {
		return 0, err
	}
	r.Setup.Modules = modules.guestPaths(r.Release)
	setup, err := json.Marshal(r.Setup)
	if err != nil {
		return 0, err
	}
	if r.Setup.Systemd {
		if err := errors.Join(
			skeleton(t, r.Setup.Hostname),
			modules.put(t, index, r.Release),
			t.putFile(wire.AgentPath, r.Agent),
			t.putText(wire.SetupPath, 0o644, string(setup)),
			putGiven(t, r.Give),
		); err != nil {
			return 0, err
		}
		return t.write(w)
	}
	if err := errors.Join(
		skeleton(t, r.Setup.Hostname),
		modules.put(t, index, r.Release),
		t.putFile(wire.AgentPath, r.Agent),
		putLibraries(t, r.Agent),
		t.putText(wire.SetupPath, 0o644, string(setup)),
		r.putPrograms(t),
	); err != nil {
		return 0, err
	}
	return t.write(w)
}

// putPrograms adds busybox, the programs that replace some of its own, and what is given.
func (r Root) putPrograms(t tree) error {
	if r.Tools == "" {
		errs := []error{putBusybox(t, r.Busybox, r.Busybox), putRunners(t)}
		for _, given := range r.Give {
			errs = append(errs, given.put(t))
		}
		return errors.Join(errs...)
	}
	busybox := filepath.Join(r.Tools, "bin/busybox")
	if _, err := os.Stat(busybox); err != nil {
		busybox = filepath.Join(r.Tools, "usr/bin/busybox")
	}
	// Busybox's shell would run busybox's programs instead of others on the PATH.
	errs := []error{putBusybox(t, busybox, r.Busybox), putTools(t, r.Tools), t.putLink("/usr/bin/sh", "dash")}
	for _, given := range r.Give {
		errs = append(errs, given.putForeign(t, r.Arch))
	}
	return errors.Join(errs...)
}

// putGiven puts the given files below a directory, from which the agent copies
// them to the root file system with systemd.
func putGiven(t tree, gives []Given) error {
	given := make(tree)
	if err := links(given); err != nil {
		return err
	}
	for _, g := range gives {
		if err := g.put(given); err != nil {
			return err
		}
	}
	for name, n := range given {
		if n.mode&fs.ModeSymlink == 0 || mergedLinks[name] == "" {
			if err := t.put(wire.GivenDir+name, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// mergedLinks are the links of a root with a merged /usr.
var mergedLinks = map[string]string{"/bin": "usr/bin", "/sbin": "usr/sbin", "/lib": "usr/lib", "/lib64": "usr/lib64"}

func links(t tree) error {
	var errs []error
	for link, target := range mergedLinks {
		errs = append(errs, t.putLink(link, target))
	}
	return errors.Join(errs...)
}

// skeleton adds the directories of a merged /usr and the files in /etc that
// programs expect, such as passwd.
func skeleton(t tree, hostname string) error {
	var errs []error
	for _, dir := range []string{
		"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/local/bin", "/usr/local/sbin", "/usr/share",
		"/etc", "/dev", "/proc", "/sys", "/run", "/mnt", "/opt", "/srv", "/home", "/var/lib", "/var/log", "/var/cache", "/var/spool",
	} {
		errs = append(errs, t.putDirectory(dir, 0o755))
	}
	errs = append(errs, t.putDirectory("/root", 0o700), t.putDirectory("/tmp", fs.ModeSticky|0o777), t.putDirectory("/var/tmp", fs.ModeSticky|0o777))
	errs = append(errs, links(t), t.putLink("/var/run", "/run"), t.putLink("/etc/mtab", "/proc/self/mounts"))
	for name, text := range map[string]string{
		"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
		"/etc/group":         "root:x:0:\ndaemon:x:1:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nmail:x:8:\nusers:x:100:\nnogroup:x:65534:\n",
		"/etc/shadow":        "root:*:19000:0:99999:7:::\n",
		"/etc/hostname":      hostname + "\n",
		"/etc/hosts":         "127.0.0.1 localhost " + hostname + "\n::1 localhost\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
		"/etc/machine-id":    strings.Repeat("0", 31) + "1\n",
		"/etc/os-release":    "ID=daybook-vm\nNAME=\"Daybook's guest\"\n",
	} {
		errs = append(errs, t.putText(name, 0o644, text))
	}
	return errors.Join(errs...)
}

// runners are programs that run others. Busybox's versions would run busybox
// instead of a program of the same name on the PATH, so the host's versions are
// copied, if the host has them.
var runners = []string{
	"sh", "env", "xargs", "find", "timeout", "nice", "nohup", "chroot", "setsid", "ionice", "chrt", "taskset", "flock",
	"nsenter", "unshare", "setpriv", "setarch", "run-parts", "watch", "time", "stdbuf",
}

func putRunners(t tree) error {
	for _, name := range runners {
		program, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		// /bin/sh is a link to dash or bash; only the name is needed.
		real, err := filepath.EvalSymlinks(program)
		if err != nil {
			return err
		}
		if err := putHost(t, real, path.Join("/usr/bin", name)); err != nil {
			return err
		}
	}
	return nil
}

// putBusybox puts busybox with its names in a separate directory, so that a
// program of the host always comes first. Only programs that others call by an
// absolute path are elsewhere; files of the host can replace them. lister is a busybox
// that runs here, and knows the names.
func putBusybox(t tree, busybox, lister string) error {
	if _, err := os.Stat(busybox); err != nil {
		return err
	}
	needed, err := libraries(busybox)
	if err != nil {
		return err
	}
	if len(needed) > 0 {
		return fmt.Errorf("%s is not static: install busybox-static", busybox)
	}
	text, err := exec.Command(lister, "--list").Output()
	if err != nil {
		return fmt.Errorf("cannot list the applets of %s: %w", lister, err)
	}
	errs := []error{t.putFile(wire.Busybox, busybox)}
	for applet := range strings.FieldsSeq(string(text)) {
		errs = append(errs, t.putLink(path.Join(wire.AppletDir, applet), "../busybox"))
	}
	for _, name := range []string{"/usr/bin/sh", "/usr/bin/env", "/usr/bin/busybox", "/usr/sbin/modprobe"} {
		errs = append(errs, t.putLink(name, wire.Busybox))
	}
	return errors.Join(errs...)
}
