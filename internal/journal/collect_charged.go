package journal

import "fmt"

// seenCharged are the last values of the sums of a disk and a cgroup.
type seenCharged struct {
	sums attributionCharged
	idle int // as in seenSum
}

// collectCharged computes this interval's sums of what the kernel charged to the
// cgroups, from the kernel's running sums.
func (p *Probe) collectCharged() error {
	b := &p.buffers
	if b.chargedKeys == nil {
		b.chargedKeys = make([]attributionChargedKey, batchEntries)
		b.chargedValues = make([]attributionCharged, batchEntries)
	}
	err := readAll(p.objects.ChargedIo, b.chargedKeys, b.chargedValues, func(n int) {
		for i, key := range b.chargedKeys[:n] {
			now, before := b.chargedValues[i], p.charged[key]
			grown := false
			for _, sum := range []struct {
				kind        Kind
				now, before uint64
			}{
				{KindJournal, now.JournalBytes, before.sums.JournalBytes},
				{KindChargedRead, now.ReadBytes, before.sums.ReadBytes},
				{KindChargedWrite, now.WriteBytes, before.sums.WriteBytes},
				{KindOutstanding, now.OutstandingNs, before.sums.OutstandingNs},
				{KindBusy, now.BusyNs, before.sums.BusyNs},
			} {
				if sum.now == sum.before {
					continue
				}
				grown = true
				p.pending.Writes = append(p.pending.Writes, Write{Disk: key.Disk, Kind: sum.kind, Charged: key.Cgroup, Bytes: sum.now - sum.before})
			}
			if grown {
				p.charged[key] = seenCharged{sums: now}
				continue
			}
			before.idle++
			p.charged[key] = before
		}
	})
	if err != nil {
		return fmt.Errorf("cannot read what the kernel charged to the cgroups: %w", err)
	}
	return p.forgetCharged(func(key attributionChargedKey) bool { return p.charged[key].idle >= idleCollections })
}

// forgetCharged deletes sums that do not grow any more from the kernel's map.
func (p *Probe) forgetCharged(ended func(attributionChargedKey) bool) error {
	for key := range p.charged {
		if !ended(key) {
			continue
		}
		if err := deleteAll(p.objects.ChargedIo, []attributionChargedKey{key}); err != nil {
			return err
		}
		delete(p.charged, key)
	}
	return nil
}
