package meter

import (
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
)

// alwaysFresh is the number of containers whose weights are read at every
// interval; beyond it, each is read every refreshRounds, to bound the cost on
// hosts with thousands of cgroups.
const (
	alwaysFresh   = 256
	refreshRounds = 8
)

// weightCache remembers the weights of one disk's cgroups.
type weightCache struct {
	tree    *cgroup.Tree
	disk    blockdev.Disk
	weights *cgroup.Weights // nil where the disk's scheduler knows none
	known   map[string]*cachedWeight
	round   int
	many    bool
}

type cachedWeight struct {
	first, now uint64
	round      int
}

func newWeightCache(tree *cgroup.Tree, disk blockdev.Disk) *weightCache {
	return &weightCache{tree: tree, disk: disk, known: make(map[string]*cachedWeight)}
}

// begin starts a round over the disk's containers.
func (w *weightCache) begin(containers int) {
	w.round++
	w.many = containers > alwaysFresh
	w.weights = nil
	scheduler, err := w.disk.Scheduler()
	if err != nil {
		return
	}
	if weights, err := w.tree.Weights(w.disk.Dev, scheduler.Current); err == nil {
		w.weights = weights
	}
	for path, c := range w.known {
		if w.round-c.round > 2*refreshRounds {
			delete(w.known, path)
		}
	}
}

// get is the weight in force; 0 where there is none.
func (w *weightCache) get(path string) uint64 {
	if w.weights == nil {
		return 0
	}
	c, ok := w.known[path]
	if ok && w.many && w.round-c.round < refreshRounds {
		return c.now
	}
	setting, err := w.weights.Get(path)
	if err != nil {
		return 0 // it vanished
	}
	if !ok {
		c = &cachedWeight{first: setting.Effective()}
		w.known[path] = c
	}
	c.now, c.round = setting.Effective(), w.round
	return c.now
}

// first is the weight that was found first, what the owner of the host meant
// before any control; 1 for cgroups without a weight.
func (w *weightCache) first(path string) float64 {
	w.get(path)
	if c := w.known[path]; c != nil && c.first > 0 {
		return float64(c.first)
	}
	return 1
}
