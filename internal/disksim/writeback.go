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
// BFQ. What restores the device is in the record first.
func (d *Disk) matchWriteback(disk blockdev.Disk) error {
	now, err := disk.Queue(writebackTarget)
	if err != nil {
		return nil // a kernel without it
	}
	bfq := d.record.Scheduler == blockdev.BFQ
	if bfq && now == "0" {
		return nil
	}
	d.record.PreviousWriteback = now
	if err := d.home.writeRecord(d.record); err != nil {
		return err
	}
	if bfq {
		return disk.SetQueue(writebackTarget, "0")
	}
	return disk.ResetQueue(writebackTarget)
}

// restoreWriteback restores the target.
func restoreWriteback(disk blockdev.Disk, record Record) error {
	if record.PreviousWriteback == "" || record.Device != disk.Name {
		return nil
	}
	return disk.SetQueue(writebackTarget, record.PreviousWriteback)
}
