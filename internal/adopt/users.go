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
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/container"
)

// survey is what the entries of a watch ask the host for. One answer serves all of them: to list
// the cgroups, and to read the mounts of all processes, takes long on a host with many containers.
type survey struct {
	// list and look are listContainers and lookForUsers.
	list func(context.Context) ([]container.Identity, error)
	look func() (map[blockdev.Dev][]string, error)

	containers     []container.Identity
	listFailure    error
	users          map[blockdev.Dev][]string
	lookFailure    error
	listed, looked time.Time
}

func newSurvey() *survey {
	resolver := container.NewResolver(container.Config{})
	return &survey{
		list: func(ctx context.Context) ([]container.Identity, error) { return listContainers(ctx, resolver) },
		look: lookForUsers,
	}
}

// container finds the cgroup of a running container by its name or by the start of its ID, in a
// list that is younger than half of resolveInterval. The error wraps ErrNoContainer if there is none.
func (s *survey) container(ctx context.Context, name string, now time.Time) (string, error) {
	if now.Sub(s.listed) >= resolveInterval/2 {
		s.containers, s.listFailure = s.list(ctx)
		s.listed = now
	}
	if s.listFailure != nil {
		return "", s.listFailure
	}
	return named(s.containers, name)
}

// usersOf lists the cgroups of the containers in whose mount namespaces a device is mounted, or was
// at most usersInterval before now. A container that has the whole root file system of the host,
// such as a monitor, does not count.
func (s *survey) usersOf(dev blockdev.Dev, now time.Time) ([]string, error) {
	if now.Sub(s.looked) >= usersInterval {
		s.users, s.lookFailure = s.look()
		s.looked = now
		if s.lookFailure != nil { // until the next round
			s.looked = now.Add(WatchInterval - usersInterval)
		}
	}
	return s.users[dev], s.lookFailure
}

// lookForUsers lists the cgroups of the containers in whose mount namespaces devices are mounted.
func lookForUsers() (map[blockdev.Dev][]string, error) {
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
	users := map[blockdev.Dev][]string{}
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
		if err != nil {
			continue
		}
		devices := usedDevices(string(text), root)
		if len(devices) == 0 {
			continue
		}
		at, err := tree.Of(pid)
		if err != nil {
			continue
		}
		identity := container.Identify(at)
		if !identity.IsContainer() {
			continue
		}
		for _, dev := range devices {
			if !slices.Contains(users[dev], identity.Root) {
				users[dev] = append(users[dev], identity.Root)
			}
		}
	}
	for _, cgroups := range users {
		slices.Sort(cgroups)
	}
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

// usedDevices lists the block devices whose mounts a mountinfo has; none if it has a mount of the
// host's whole root directory, which can be a directory of its file system, such as a subvolume.
func usedDevices(mountinfo string, root blockdev.Mount) (devices []blockdev.Dev) {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if fields[2] == root.Dev.String() {
			mount, err := blockdev.ParseMount(strings.TrimSuffix(line, "\n"))
			if err == nil && (mount.Root == root.Root || mount.Root == "/") {
				return nil
			}
		}
		// Major 0 is that of no block device.
		if dev, err := blockdev.ParseDev(fields[2]); err == nil && dev.Major != 0 && !slices.Contains(devices, dev) {
			devices = append(devices, dev)
		}
	}
	return devices
}

// ErrNoContainer means that no running container has a name.
var ErrNoContainer = errors.New("no running container")

// listContainers lists the running containers.
func listContainers(ctx context.Context, resolver *container.Resolver) (all []container.Identity, err error) {
	tree, err := cgroup.Find()
	if err != nil {
		return nil, err
	}
	cgroups, err := tree.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, at := range cgroups {
		if identity := resolver.Resolve(at.Path); identity.Root == at.Path && identity.IsContainer() {
			all = append(all, identity)
		}
	}
	return all, nil
}

// named finds the cgroup of the container that has a name, or an ID that starts with it.
func named(containers []container.Identity, name string) (string, error) {
	var found []string
	for _, c := range containers {
		if c.Name == name || len(name) >= minIDDigits && strings.HasPrefix(c.ID, name) {
			found = append(found, c.Root)
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
