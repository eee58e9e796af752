package journal

import (
	"errors"
	"fmt"
)

// collectCharged computes this interval's sums of what the kernel charged to the
// cgroups, from the kernel's running sums.
func (p *Probe) collectCharged() error {
	visit := func(key attributionChargedKey, before, now attributionCharged) {
		for _, sum := range []struct {
			kind        Kind
			now, before uint64
		}{
			{KindJournal, now.JournalBytes, before.JournalBytes},
			{KindChargedRead, now.ReadBytes, before.ReadBytes},
			{KindChargedWrite, now.WriteBytes, before.WriteBytes},
			{KindOutstanding, now.OutstandingNs, before.OutstandingNs},
			{KindBusy, now.BusyNs, before.BusyNs},
			{KindFlush, now.FlushNs, before.FlushNs},
		} {
			if sum.now != sum.before {
				p.pending.Writes = append(p.pending.Writes, Write{Disk: key.Disk, Kind: sum.kind, Charged: key.Cgroup, Bytes: sum.now - sum.before})
			}
		}
	}
	if err := errors.Join(p.chargedPlaces.collect(visit), p.charged.collect(p.objects.ChargedIo, visit)); err != nil {
		return fmt.Errorf("cannot read what the kernel charged to the cgroups: %w", err)
	}
	return nil
}
