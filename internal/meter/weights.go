package meter

import (
	"math/rand/v2"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
)

// alwaysFresh is the number of containers whose weights are read at every
// sample. Beyond it, each is read every refreshAge, at different times, to
// limit the cost on hosts with thousands of cgroups.
const (
	alwaysFresh = 256
	refreshAge  = 40 * time.Second
)

// weightCache stores the weights of the cgroups of one disk.
type weightCache struct {
	tree    *cgroup.Tree
	disk    blockdev.Disk
	weights *cgroup.Weights // nil if the disk's scheduler has none
	known   map[string]*cachedWeight
	time    time.Time // of the round
	many    bool
}

type cachedWeight struct {
	first, now uint64
	asked, due time.Time
}

func newWeightCache(tree *cgroup.Tree, disk blockdev.Disk) *weightCache {
	return &weightCache{tree: tree, disk: disk, known: make(map[string]*cachedWeight)}
}

// begin starts a round over the disk's containers.
func (w *weightCache) begin(containers int) {
	w.time = time.Now()
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
		if w.time.Sub(c.asked) > 2*refreshAge {
			delete(w.known, path)
		}
	}
}

// byCost reports whether io.cost divided the disk in the last round.
func (w *weightCache) byCost() bool { return w.weights != nil && w.weights.File() == "io.weight" }

// get returns the weight in force; 0 if there is none.
func (w *weightCache) get(path string) uint64 {
	if w.weights == nil {
		return 0
	}
	c, ok := w.known[path]
	if ok {
		c.asked = w.time
		if w.many && w.time.Before(c.due) {
			return c.now
		}
	}
	setting, err := w.weights.Get(path)
	if err != nil {
		return 0 // it vanished
	}
	age := refreshAge
	if !ok {
		c = &cachedWeight{first: setting.Effective(), asked: w.time}
		w.known[path] = c
		// Cgroups that are found together must not be read together again.
		age = rand.N(refreshAge)
	}
	c.now, c.due = setting.Effective(), w.time.Add(age)
	return c.now
}

// first returns the weight that was found first, before any control changed it;
// 1 for cgroups without a weight.
func (w *weightCache) first(path string) float64 {
	w.get(path)
	if c := w.known[path]; c != nil && c.first > 0 {
		return float64(c.first)
	}
	return 1
}
