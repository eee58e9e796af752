package disksim

import "github.com/daybook-project/daybook/internal/blockdev"

// writebackTarget is the attribute of the kernel's throttling of writeback (block/blk-wbt.c): the
// latency of reads, in microseconds, above which few background writes may be in flight; 0: no
// throttling.
const writebackTarget = "wbt_lat_usec"

// matchWriteback sets the throttling that the kernel has for a disk like this one: none under
// BFQ, else with the target that it chooses by queue/rotational, 75 ms or 2 ms
// (wbt_default_latency_nsec). A loop device does not have that by itself. Its target is chosen when
// the kernel makes it, before it is rotational, and one that was ever written stays in force under
// BFQ. What restores the device is in the record.
func (d *Disk) matchWriteback(disk blockdev.Disk) error {
	now, err := disk.Queue(writebackTarget)
	if err != nil {
		return nil // a kernel without it
	}
	if d.record.Scheduler != blockdev.BFQ {
		return disk.ResetQueue(writebackTarget)
	}
	if now == "0" {
		return nil
	}
	return disk.SetQueue(writebackTarget, "0")
}

// restoreWriteback restores the target that the device had under the scheduler before, which is
// in force again. If the kernel has chosen it already, nothing is written: a value that was
// written stays.
func restoreWriteback(disk blockdev.Disk, record Record) error {
	if record.PreviousWriteback == "" || record.Device != disk.Name {
		return nil
	}
	if now, err := disk.Queue(writebackTarget); err != nil || now == record.PreviousWriteback {
		return err
	}
	err := disk.SetQueue(writebackTarget, record.PreviousWriteback)
	if err == nil {
		return nil
	}
	// BFQ can refuse it: it switches the throttling off.
	if scheduler, unknown := disk.Scheduler(); unknown == nil && scheduler.Current == blockdev.BFQ {
		return nil
	}
	return err
}
