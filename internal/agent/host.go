package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
)

// check reports all that is missing on this host.
func check(config Config) error {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root (securityContext.privileged: true)")
	}
	if comm, err := os.ReadFile("/proc/2/comm"); err != nil || strings.TrimSpace(string(comm)) != "kthreadd" {
		missing = append(missing, "the host's kernel threads in /proc (hostPID: true; a node that is itself a container, as in kind and k3d, has none)")
	}
	if _, err := os.Stat(config.KubeletDir); err != nil {
		missing = append(missing, fmt.Sprintf("the kubelet's directory %s (a hostPath volume with mountPropagation: HostToContainer; else kubelet_dir)", config.KubeletDir))
	}
	switch _, err := cgroup.FindOfProcesses(); {
	case errors.Is(err, cgroup.ErrPartial):
		missing = append(missing, "the host's cgroups (this container has only a part of them: securityContext.privileged: true and a hostPath volume of /sys/fs/cgroup)")
	case err != nil:
		missing = append(missing, err.Error())
	}
	var sys unix.Statfs_t
	if err := unix.Statfs("/sys", &sys); config.Control != nil && err == nil && sys.Flags&unix.ST_RDONLY != 0 {
		missing = append(missing, "a writable /sys, for the tunables of disks under control (a hostPath volume of /sys)")
	}
	if !hasDevices("/sys/class/block", "/dev") {
		missing = append(missing, "the host's devices (a hostPath volume of /dev)")
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s", ErrUnsupported, strings.Join(missing, "; "))
	}
	return nil
}

// ErrUnsupported means that the host lacks something.
var ErrUnsupported = errors.New("the agent cannot work here; missing")

// hasDevices says whether there is a node for one of the block devices. Nodes with NVMe or
// Xen disks alone, and those without loop devices, have them, too. A host without a block
// device lacks none.
func hasDevices(class, dev string) bool {
	entries, err := os.ReadDir(class)
	if err != nil {
		return false
	}
	for _, entry := range entries {
		info, err := os.Stat(filepath.Join(dev, strings.ReplaceAll(entry.Name(), "!", "/")))
		if err == nil && info.Mode()&os.ModeDevice != 0 {
			return true
		}
	}
	return len(entries) == 0
}

// hostPath is what a path is on the host when all links in it are followed, as the kernel
// lists mounts. Where the root of the host may not be opened, it is that of this process.
func hostPath(path string) (string, error) {
	target, err := pathIn(blockdev.RootOfInit, path)
	if errors.Is(err, fs.ErrPermission) {
		return filepath.EvalSymlinks(path)
	}
	return target, err
}

// pathIn follows all links of a path below a root directory. The result is as seen from the
// mount namespace of that directory.
func pathIn(root, path string) (string, error) {
	below, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("cannot open %s: %w", root, err)
	}
	defer unix.Close(below)
	fd, err := unix.Openat2(below, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return "", fmt.Errorf("cannot open %s in %s: %w", path, root, err)
	}
	defer unix.Close(fd)
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
}
