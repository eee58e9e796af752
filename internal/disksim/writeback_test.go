package disksim

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/needs"
)

// The free loop device that the next disk has keeps what was written of its queue.
func TestWritebackIsThrottledAsOnADiskOfThatSchedulerAndModel(t *testing.T) {
	r := newRig(t)
	target := func(disk *Disk) string {
		t.Helper()
		value, err := disk.Device.Queue(writebackTarget)
		needs.That(t, err == nil, "the kernel's throttling of writeback")
		return value
	}
	for n, c := range []struct{ model, scheduler, want string }{
		{"hdd", "mq-deadline", "75000"}, {"hdd", "bfq", "0"}, {"ssd", "none", "2000"}, {"hdd", "none", "75000"}, {"ssd", "bfq", "0"},
	} {
		disk := r.create(Config{Name: string(rune('a' + n)), Parameters: presets[c.model], Scheduler: c.scheduler})
		if now := target(disk); now != c.want {
			t.Errorf("%s, %s: wbt_lat_usec is %s, want %s", c.model, c.scheduler, now, c.want)
		}
		if err := disk.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		used, err := blockdev.Loops()
		if err != nil {
			t.Fatal(err)
		}
		// Another program can have the device already.
		if slices.ContainsFunc(used, func(l blockdev.Loop) bool { return l.Name == disk.Device.Name }) {
			continue
		}
		if now := target(disk); now == "75000" {
			t.Errorf("%s, %s: wbt_lat_usec of the free device is still %s", c.model, c.scheduler, now)
		}
	}
}

func TestTheTargetOfAnotherProgramIsRestored(t *testing.T) {
	r := newRig(t)
	disk := r.create(Config{Name: "first", Parameters: presets["hdd"], Scheduler: KeepScheduler})
	loop := disk.Device
	before, err := loop.Queue(writebackTarget)
	needs.That(t, err == nil, "the kernel's throttling of writeback")
	d := Disk{record: Record{Name: "second", Device: loop.Name, Scheduler: blockdev.BFQ, PreviousWriteback: "12345"}}
	if err := loop.SetQueue(writebackTarget, "12345"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(loop.SetQueue(writebackTarget, before), disk.Delete(context.Background())); err != nil {
			t.Error(err)
		}
	})
	if err := d.matchWriteback(loop); err != nil {
		t.Fatal(err)
	}
	if now, err := loop.Queue(writebackTarget); err != nil || now != "0" {
		t.Errorf("target %s, %v; want 0 (%s at first)", now, err, before)
	}
	if err := restoreWriteback(loop, d.record); err != nil {
		t.Fatal(err)
	}
	if now, err := loop.Queue(writebackTarget); err != nil || now != "12345" {
		t.Errorf("target %s, %v, after restoring; want 12345", now, err)
	}
}

// A free loop device can have BFQ, which an earlier program set, and then no throttling.
func TestADiskEndsOnADeviceThatHadBFQ(t *testing.T) {
	r := newRig(t)
	disk := r.create(Config{Name: "first", Parameters: presets["ssd"], Scheduler: "none"})
	for _, previous := range []string{"0", "2000"} {
		record := disk.record
		record.PreviousScheduler, record.PreviousWriteback = blockdev.BFQ, previous
		if err := restoreQueue(disk.Device, record); err != nil {
			t.Errorf("recorded %s: %v", previous, err)
		}
		if now, err := disk.Device.Scheduler(); err != nil || now.Current != blockdev.BFQ {
			t.Errorf("recorded %s: the scheduler is %s, %v; want bfq", previous, now.Current, err)
		}
		if err := disk.Device.RenewScheduler("none"); err != nil {
			t.Fatal(err)
		}
	}
	if disk.record.PreviousWriteback == "" {
		if now, err := disk.Device.Queue(writebackTarget); err == nil {
			t.Errorf("the target is %s, and the record has none to restore", now)
		}
	}
}
