package volume

import "github.com/daybook-project/daybook/internal/cgroup"

// raiseJournal gives the journal's cgroup the greatest weight among the children
// of its parent, for BFQ. What the container gets of the disk stays the parent's
// weight. But who waits for a sync waits first for the container's own write, and
// then for the commit of another thread, jbd2, while BFQ keeps the disk idle for
// the next request of the one before (slice_idle). A request goes before that if
// the weight of its cgroup is greater than that of the cgroup in service
// (block/bfq-iosched.c, bfq_bfqq_higher_class_or_weight, Linux 6.1): a commit then
// does. io.cost waits for nobody, and would take from the container what it thinks
// that a journal of such weight needs.
func raiseJournal(weights *cgroup.Weights, journal string) error {
	now, err := weights.Get(journal)
	if err != nil || now.Effective() == weights.Max() {
		return err
	}
	return weights.Set(journal, weights.Max())
}
