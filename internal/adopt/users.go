package adopt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/container"
)

// Users lists the cgroups of the containers in whose mount namespaces a device is mounted.
// A container that has the whole root file system of the host, such as a monitor, does not
// count.
func Users(dev blockdev.Dev) ([]string, error) {
	tree, err := cgroup.Find()
	if err != nil {
		return nil, err
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	root, err := rootMount()
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var users []string
	for _, process := range processes {
		pid, err := strconv.Atoi(process.Name())
		if err != nil {
			continue
		}
		directory := filepath.Join("/proc", process.Name())
		namespace, err := os.Readlink(filepath.Join(directory, "ns/mnt"))
		if err != nil || seen[namespace] {
			continue // it has ended
		}
		seen[namespace] = true
		text, err := os.ReadFile(filepath.Join(directory, "mountinfo"))
		if err != nil || !uses(string(text), dev, root) {
			continue
		}
		at, err := tree.Of(pid)
		if err != nil {
			continue
		}
		if identity := container.Identify(at); identity.IsContainer() && !slices.Contains(users, identity.Root) {
			users = append(users, identity.Root)
		}
	}
	slices.Sort(users)
	return users, nil
}

// rootMount is the mount of the host's root directory.
func rootMount() (blockdev.Mount, error) {
	mounts, err := blockdev.Mounts()
	if err != nil {
		return blockdev.Mount{}, err
	}
	for _, mount := range slices.Backward(mounts) {
		if mount.Point == "/" {
			return mount, nil
		}
	}
	return blockdev.Mount{}, errors.New("nothing is mounted on /")
}

// uses says whether a mountinfo has a mount of the device, and no mount of the host's whole root
// directory, which can be a directory of its file system, such as a subvolume.
func uses(mountinfo string, dev blockdev.Dev, root blockdev.Mount) bool {
	found := false
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if fields[2] == root.Dev.String() {
			mount, err := blockdev.ParseMount(strings.TrimSuffix(line, "\n"))
			if err == nil && (mount.Root == root.Root || mount.Root == "/") {
				return false
			}
		}
		found = found || fields[2] == dev.String()
	}
	return found
}

// ErrNoContainer means that no running container has a name.
var ErrNoContainer = errors.New("no running container")

// Container finds the cgroup of a running container by its name or by the start of its ID.
// The error wraps ErrNoContainer if there is none.
func Container(ctx context.Context, resolver *container.Resolver, name string) (string, error) {
	tree, err := cgroup.Find()
	if err != nil {
		return "", err
	}
	all, err := tree.List(ctx)
	if err != nil {
		return "", err
	}
	var found []string
	for _, at := range all {
		identity := resolver.Resolve(at.Path)
		if identity.Root != at.Path || !identity.IsContainer() {
			continue
		}
		if identity.Name == name || len(name) >= minIDDigits && strings.HasPrefix(identity.ID, name) {
			found = append(found, at.Path)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%w is called %q: daybook top shows the names", ErrNoContainer, name)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d containers are called %q: name one by its ID or cgroup: %s", len(found), name, strings.Join(found, ", "))
}

// minIDDigits are the least digits of an ID that name a container.
const minIDDigits = 12
