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
	d := Disk{record: Record{Name: "second", Device: loop.Name, Scheduler: blockdev.BFQ}, home: home(t.TempDir())}
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
	if now, err := loop.Queue(writebackTarget); err != nil || now != "0" || d.record.PreviousWriteback != "12345" {
		t.Errorf("target %s, %v, recorded %q; want 0 and 12345 (%s at first)", now, err, d.record.PreviousWriteback, before)
	}
	if err := restoreWriteback(loop, d.record); err != nil {
		t.Fatal(err)
	}
	if now, err := loop.Queue(writebackTarget); err != nil || now != "12345" {
		t.Errorf("target %s, %v, after restoring; want 12345", now, err)
	}
}
