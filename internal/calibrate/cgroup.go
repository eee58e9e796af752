package calibrate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/journal"
)

// ownCgroup is the kernfs id under which the probe charges this process: on v1
// its blkio cgroup, on v2 the nearest ancestor with the io controller.
func ownCgroup() (uint64, error) {
	tree, err := cgroup.Find()
	if errors.Is(err, cgroup.ErrNoHierarchy) {
		return journal.RootCgroupID, nil
	}
	if err != nil {
		return 0, err
	}
	own, err := tree.Of(os.Getpid())
	if err != nil {
		return 0, err
	}
	for tree.Version() == cgroup.V2 && own != cgroup.RootPath {
		_, err := os.Stat(filepath.Join(tree.Root(), own, "io.stat"))
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("cannot find the cgroup that is charged for our I/O: %w", err)
		}
		own = path.Dir(own)
	}
	found, err := tree.Lookup(own)
	if err != nil {
		return 0, err
	}
	return found.ID, nil
}
