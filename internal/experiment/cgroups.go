package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
)

// cgroupPrefix begins the name of the cgroup under which an experiment's
// containers are; the process id follows, so that what a killed run left is
// recognised.
const cgroupPrefix = "daybook-experiment-"

// group is a private cgroup with one child for each container.
type group struct {
	tree   *cgroup.Tree
	parent string // path of the private cgroup
	undo   []func() error
}

// newGroup makes the private cgroup, after it removed those of dead runs.
func newGroup(tree *cgroup.Tree) (*group, error) {
	if err := removeDeadGroups(tree); err != nil {
		return nil, err
	}
	g := &group{tree: tree, parent: "/" + cgroupPrefix + strconv.Itoa(os.Getpid())}
	if tree.Version() == cgroup.V2 {
		if err := g.enableIO(cgroup.RootPath); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(g.directory(g.parent), 0o755); err != nil {
		return nil, fmt.Errorf("cannot make a cgroup for the experiment: %w", err)
	}
	if tree.Version() == cgroup.V2 {
		if err := g.enableIO(g.parent); err != nil {
			return nil, errors.Join(err, g.close())
		}
	}
	return g, nil
}

func (g *group) directory(path string) string { return filepath.Join(g.tree.Root(), path) }

// ownControllers are those that a container's cgroup on v2 needs for its I/O to
// be charged to it: without memory, the kernel does not know whose pages it
// writes back, and charges its parent.
var ownControllers = []string{"io", "memory"}

// enableIO gives the children of a v2 cgroup the controllers, and takes those
// from them again at the end that they did not have.
func (g *group) enableIO(path string) error {
	file := filepath.Join(g.directory(path), "cgroup.subtree_control")
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cannot see the controllers of cgroup %s: %w", path, err)
	}
	enabled := strings.Fields(string(text))
	for _, controller := range ownControllers {
		if slices.Contains(enabled, controller) {
			continue
		}
		if err := os.WriteFile(file, []byte("+"+controller), 0); err != nil {
			return fmt.Errorf("cannot enable the controller %s below cgroup %s: %w", controller, path, err)
		}
		g.undo = append(g.undo, func() error {
			err := os.WriteFile(file, []byte("-"+controller), 0)
			if errors.Is(err, fs.ErrNotExist) {
				return nil // the cgroup is gone, and its children with it
			}
			return err
		})
	}
	return nil
}

// add makes a container's cgroup with a weight on the disk (0: the default)
// and returns its path.
func (g *group) add(name string, disk blockdev.Disk, weight uint64) (string, error) {
	path := g.parent + "/" + name
	if err := os.Mkdir(g.directory(path), 0o755); err != nil {
		return "", fmt.Errorf("cannot make the cgroup of container %s: %w", name, err)
	}
	if weight == 0 {
		return path, nil
	}
	scheduler, err := disk.Scheduler()
	if err != nil {
		return "", err
	}
	weights, err := g.tree.Weights(disk.Dev, scheduler.Current)
	if err != nil {
		return "", err
	}
	return path, weights.Set(path, weight)
}

// close removes the cgroups; their processes must have ended.
func (g *group) close() error {
	err := removeTree(g.tree, g.parent)
	for i := len(g.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, g.undo[i]())
	}
	return err
}

func removeDeadGroups(tree *cgroup.Tree) error {
	entries, err := os.ReadDir(tree.Root())
	if err != nil {
		return fmt.Errorf("cannot look for cgroups of killed experiments: %w", err)
	}
	for _, entry := range entries {
		pid, isOurs := strings.CutPrefix(entry.Name(), cgroupPrefix)
		if !isOurs {
			continue
		}
		if _, err := os.Stat("/proc/" + pid); err == nil && pid != strconv.Itoa(os.Getpid()) {
			continue
		}
		if err := removeTree(tree, "/"+entry.Name()); err != nil {
			return err
		}
	}
	return nil
}

// removeTree removes a cgroup with its children.
func removeTree(tree *cgroup.Tree, path string) error {
	entries, err := os.ReadDir(filepath.Join(tree.Root(), path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot remove a cgroup: %w", err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(tree, path+"/"+entry.Name()); err != nil {
				return err
			}
		}
	}
	return tree.Remove(path)
}
