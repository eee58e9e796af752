package placement

import (
	"errors"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4"
)

// Deserted says whether the parent cgroup has no process in it or below it but the threads
// of journals, or is gone. Then its owner may be about to remove it, and a thread inside
// would prevent that.
func Deserted(parent string) (bool, error) {
	tree, err := tree()
	if err != nil {
		return false, err
	}
	pids, err := tree.ProcessesBelow(parent)
	if errors.Is(err, cgroup.ErrVanished) {
		return true, nil
	}
	for _, pid := range pids {
		if !ext4.IsJournalThread(pid) {
			return false, nil
		}
	}
	return err == nil, err
}

// Leave moves the threads of journals out of the journal's cgroup to the root cgroup, so
// that [Thread.Release] can remove the cgroup while the file system stays mounted.
func (s Placed) Leave() error {
	if s.Placement == None {
		return nil
	}
	tree, err := tree()
	if errors.Is(err, cgroup.ErrNoHierarchy) {
		return nil
	}
	if err != nil {
		return err
	}
	pids, err := tree.Processes(s.Journal)
	if errors.Is(err, cgroup.ErrVanished) {
		return nil
	}
	for _, pid := range pids {
		if !ext4.IsJournalThread(pid) {
			continue
		}
		// The thread may end meanwhile.
		if moved := tree.Move(pid, cgroup.RootPath); moved != nil && ext4.IsJournalThread(pid) {
			err = errors.Join(err, moved)
		}
	}
	return err
}
