package volume_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/vm/vmtest"
	"github.com/daybook-project/daybook/volume"
)

// logicalVolume is a device of the device mapper, as LVM makes them.
type logicalVolume struct {
	t    *testing.T
	name string
	disk blockdev.Disk
	node string
}

func newLogicalVolume(t *testing.T, disk blockdev.Disk, bytes uint64) logicalVolume {
	t.Helper()
	lv := logicalVolume{t: t, name: "lv", disk: disk}
	lv.dmsetup("create", lv.name, "--noudevsync", "--noudevrules", "--table", lv.table(bytes))
	t.Cleanup(func() { lv.dmsetup("remove", "--noudevsync", "--noudevrules", lv.name) })
	name := lv.dmsetup("info", "-c", "--noheadings", "-o", "blkdevname", lv.name)
	lv.node = filepath.Join("/dev", strings.TrimSpace(name))
	return lv
}

func (lv logicalVolume) table(bytes uint64) string {
	return fmt.Sprintf("0 %d linear %s 0", bytes/blockdev.SectorBytes, lv.disk.Node())
}

// extend has the effect of lvextend.
func (lv logicalVolume) extend(bytes uint64) {
	lv.t.Helper()
	lv.dmsetup("load", lv.name, "--table", lv.table(bytes))
	lv.dmsetup("suspend", "--noudevsync", lv.name)
	lv.dmsetup("resume", "--noudevsync", lv.name)
}

func (lv logicalVolume) dmsetup(arguments ...string) string {
	lv.t.Helper()
	output, err := exec.Command("dmsetup", arguments...).CombinedOutput()
	if err != nil {
		lv.t.Fatalf("dmsetup %q: %v: %s", arguments, err, output)
	}
	return string(output)
}

func TestGuestVolumeOnALogicalVolume(t *testing.T) {
	vmtest.InGuest(t, vmtest.Config{
		Disks: []string{"256M", "256M"}, Modules: "ext4,bfq,loop,dm-mod", Give: []string{"mke2fs", "e2fsck", "resize2fs", "wipefs", "dmsetup"}, Fresh: true, OneKernel: true,
	}, func(t *testing.T) {
		pool := guestPool(t)
		disk, err := blockdev.Lookup(vmtest.Device(t, "disk1"))
		if err != nil {
			t.Fatal(err)
		}
		if err := disk.SetScheduler(blockdev.BFQ); err != nil {
			t.Fatal(err)
		}
		lv := newLogicalVolume(t, disk, 64<<20)
		if _, err := pool.Create(t.Context(), "db", volume.CreateOptions{Device: disk.Node()}); !errors.Is(err, volume.ErrBusy) {
			t.Errorf("a disk that the device mapper has became a volume: %v", err)
		}
		if _, err := pool.Create(t.Context(), "db", volume.CreateOptions{Device: lv.node, Weight: 700}); err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(t.TempDir(), "db")
		status, err := pool.Attach(t.Context(), "db", volume.AttachOptions{Target: target})
		if err != nil {
			t.Fatal(err)
		}
		// The weight is on the disk below the mapping, where I/O is scheduled.
		if status.WeightInForce != 700 || status.JournalWeight != 1000 || !status.Placed || status.BlockDevice != lv.node {
			t.Errorf("%+v", status)
		}
		fill(t, target, "before", 500)
		if status, err = pool.Inspect(t.Context(), "db"); err != nil || status.JournalWriteBytes < 500*4096 {
			t.Errorf("the journal's cgroup was charged with %d bytes on %s, %v", status.JournalWriteBytes, disk.Name, err)
		}
		t.Logf("the journal's cgroup was charged with %d bytes on %s", status.JournalWriteBytes, disk.Name)

		if _, err := pool.Resize(t.Context(), "db", 128<<20, volume.ResizeOptions{}); !errors.Is(err, volume.ErrInvalid) {
			t.Errorf("longer than the logical volume: %v", err)
		}
		lv.extend(128 << 20)
		if _, err := pool.Resize(t.Context(), "db", 128<<20, volume.ResizeOptions{}); err != nil {
			t.Errorf("at work: %v", err)
		}
		if status, err = pool.Inspect(t.Context(), "db"); err != nil || status.SizeBytes != 128<<20 || status.FreeBytes < 90<<20 {
			t.Errorf("%+v, %v", status, err)
		}
		fill(t, target, "after", 500)
		if err := pool.Detach(t.Context(), "db"); err != nil {
			t.Fatal(err)
		}
		if report, err := pool.Check(t.Context(), "db", volume.CheckOptions{}); err != nil || !report.Clean {
			t.Errorf("%+v, %v", report, err)
		}
		if err := pool.Delete(t.Context(), "db", volume.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Create(t.Context(), "next", volume.CreateOptions{Device: lv.node}); err != nil {
			t.Errorf("the logical volume was not released: %v", err)
		}
	})
}

// fill makes a number of directories. Each is one block, and is in the journal.
func fill(t *testing.T, target, name string, count int) {
	t.Helper()
	for n := range count {
		if err := os.Mkdir(fmt.Sprintf("%s/%s%d", target, name, n), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	unix.Sync()
}
