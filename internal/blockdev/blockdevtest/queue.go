// Package blockdevtest has checks of block devices for tests.
package blockdevtest

import (
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// WantQueue fails the test unless the attributes of a disk's queue have these values.
func WantQueue(t testing.TB, disk blockdev.Disk, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if now, err := disk.Queue(name); err != nil || now != value {
			t.Errorf("%s of %s is %q, %v; want %s", name, disk.Name, now, err, value)
		}
	}
}

// SetScheduler sets a disk's scheduler until the end of the test: a loop device keeps
// it when it gets another file.
func SetScheduler(t testing.TB, disk blockdev.Disk, name string) error {
	t.Helper()
	before, err := disk.Scheduler()
	if err != nil {
		return err
	}
	if err := disk.SetScheduler(name); err != nil {
		return err
	}
	t.Cleanup(func() {
		if err := disk.SetScheduler(before.Current); err != nil {
			t.Error(err)
		}
	})
	return nil
}
