package placement

import (
	"errors"
	"fmt"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
)

// shown has the weights of a cgroup on one disk.
type shown struct {
	files cgroup.Setting
	unit  uint64 // of its slice; 0: none
}

// readAttempts limits the retries while another process changes the weight.
const readAttempts = 5

// ErrUncertain means that there can be corrections that are not known.
var ErrUncertain = errors.New("cannot find out which weights are corrected")

// Weight returns the weight of a cgroup on a disk apart from corrections. With ErrUncertain, it is
// the weight in force.
func (u Uncorrected) Weight(tree *cgroup.Tree, weights *cgroup.Weights, disk blockdev.Disk, at string) (cgroup.Setting, error) {
	_, plain, err := u.apart(tree, disk, weights.File(), at, func() (now shown, err error) {
		now.files, err = weights.Get(at)
		return now, err
	})
	return plain.files, err
}

// apart returns the weights that read reads: those in force, and those apart from corrections.
// With an error, both are those in force.
func (u Uncorrected) apart(tree *cgroup.Tree, disk blockdev.Disk, file, at string, read func() (shown, error)) (now, plain shown, err error) {
	for range readAttempts {
		if now, err = read(); err != nil || u == nil {
			return now, now, err
		}
		found, err := tree.Lookup(at)
		if err != nil {
			return now, now, err
		}
		plain.files, plain.unit, err = u(disk, file, found.ID, now.files, now.unit)
		if err != nil {
			return now, now, fmt.Errorf("%w: %w", ErrUncertain, err)
		}
		// The other process may have ended meanwhile, or corrected the weight again.
		again, err := read()
		if err != nil {
			return again, again, err
		}
		if again == now {
			return now, plain, nil
		}
	}
	return now, now, fmt.Errorf("%w: they change all the time", ErrUncertain)
}
