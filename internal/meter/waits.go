package meter

import (
	"cmp"
	"context"
	"slices"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blame"
	"github.com/daybook-project/daybook/internal/journal"
)

// waits measures who waits for the journal, and for whom.
type waits struct {
	probe  *blame.Probe
	ledger blame.Ledger
	events blame.Events
	// divided are the waits of the interval so far, and lost and missed its events of which
	// nothing is in them.
	divided      []blame.Waiter
	lost, missed uint64
}

// openWaits attaches the programs that measure waits.
func (m *Meter) openWaits() error {
	probe, err := blame.Open()
	if err != nil {
		return err
	}
	m.waits = &waits{probe: probe}
	m.warnMissing(probe.Missing())
	return nil
}

// follow measures waits on the file systems of a module while one is mounted.
func (w *waits) follow(m *Meter, module journal.NVModule, mounted bool) {
	if w == nil {
		return
	}
	missing, err := w.probe.FollowNVJournal(module, mounted)
	if err != nil {
		m.options.Log.Warn("waits for journals in memory are not measured", "module", string(module), "error", err)
	}
	m.warnMissing(missing)
}

// collect takes the waits from the kernel. It runs before the commits are
// collected, so that a call that has ended finds its commit there.
func (w *waits) collect() (err error) {
	if w == nil {
		return nil
	}
	w.events, err = w.probe.Collect()
	w.lost += w.events.Lost
	w.missed += w.events.Missed
	return err
}

// begin begins the first interval.
func (w *waits) begin() error {
	if err := w.collect(); w == nil || err != nil {
		return err
	}
	w.lost, w.missed = 0, 0
	return nil
}

func (w *waits) close() error {
	if w == nil {
		return nil
	}
	return w.probe.Close()
}

// divideWaits divides the waits that were collected with these events, and adds them to those
// of the interval.
func (m *Meter) divideWaits(events journal.Events) error {
	if m.waits == nil {
		return nil
	}
	var failed error
	owner := func(dev uint32, ino uint64) (uint64, bool) {
		cgroup, ok, err := m.probe.Owner(dev, ino)
		failed = cmp.Or(failed, err)
		return cgroup, ok
	}
	m.waits.ledger.Logged(events.Logs)
	divided := m.waits.ledger.Divide(m.waits.events, events.Commits, owner)
	m.waits.divided = blame.Combine(m.waits.divided, divided)
	return failed
}

// waiters returns the waits of the interval.
func (m *Meter) waiters(ctx context.Context) ([]account.Waiter, error) {
	if m.waits == nil {
		return nil, nil
	}
	divided := m.waits.divided
	m.waits.divided = nil
	if err := m.units.meetWaiters(ctx, divided); err != nil {
		return nil, err
	}
	return mergeWaiters(divided, m.names, m.units.of, m.units.nameOf), nil
}

// waiterKey is a line of the account of waits.
type waiterKey struct{ cgroup, device, operation string }

// mergeWaiters makes lines of units from those of cgroups. names has the file
// systems that are observed.
func mergeWaiters(divided []blame.Waiter, names map[uint32]string, unitOf func(uint64) string, nameOf func(string) string) []account.Waiter {
	type line struct {
		calls    blame.Histogram
		phases   [blame.Phases]uint64
		culprits map[account.Culprit]uint64
	}
	lines := make(map[waiterKey]*line)
	for _, w := range divided {
		device, observed := names[w.Dev]
		if !observed {
			continue
		}
		key := waiterKey{unitOf(w.Cgroup), device, w.Operation.String()}
		l := lines[key]
		if l == nil {
			l = &line{calls: make(blame.Histogram), culprits: make(map[account.Culprit]uint64)}
			lines[key] = l
		}
		l.calls.Add(w.Calls)
		for phase, ns := range w.Nanoseconds {
			l.phases[phase] += ns
		}
		for _, c := range w.Culprits {
			culprit := account.Culprit{Cause: c.Cause.String()}
			if c.Cgroup != blame.Nobody {
				culprit.Cgroup = unitOf(c.Cgroup)
				culprit.Name = nameOf(culprit.Cgroup)
			}
			l.culprits[culprit] += c.Nanoseconds
		}
	}
	waiters := make([]account.Waiter, 0, len(lines)) // not nil: they were measured
	for key, l := range lines {
		w := account.Waiter{
			Cgroup: key.cgroup, Name: nameOf(key.cgroup), Device: key.device, Operation: key.operation,
			Calls: l.calls.Calls(), P50Seconds: l.calls.Quantile(0.5), P99Seconds: l.calls.Quantile(0.99),
			Phases: make(map[string]float64, blame.Phases), Culprits: []account.Culprit{}, Histogram: []account.WaitBucket{},
		}
		var total uint64
		for phase, ns := range l.phases {
			total += ns
			w.Phases[blame.Phase(phase).String()] = float64(ns) / 1e9
		}
		w.WaitSeconds = float64(total) / 1e9
		for culprit, ns := range l.culprits {
			culprit.Seconds = float64(ns) / 1e9
			w.Culprits = append(w.Culprits, culprit)
		}
		slices.SortFunc(w.Culprits, func(a, b account.Culprit) int {
			return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Cgroup, b.Cgroup))
		})
		for _, bucket := range l.calls.Buckets() {
			w.Histogram = append(w.Histogram, account.WaitBucket{UpperSeconds: bucket.UpperSeconds(), Calls: l.calls[bucket]})
		}
		waiters = append(waiters, w)
	}
	slices.SortFunc(waiters, func(a, b account.Waiter) int {
		return cmp.Or(cmp.Compare(b.WaitSeconds, a.WaitSeconds), cmp.Compare(a.Cgroup, b.Cgroup),
			cmp.Compare(a.Device, b.Device), cmp.Compare(a.Operation, b.Operation))
	})
	return waiters
}
