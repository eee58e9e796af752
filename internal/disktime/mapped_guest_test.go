package disktime_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/disktime"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// Device mapper copies bios with the marks of jbd2, but not with its functions.
func TestGuestTheJournalIsKnownBelowDeviceMapperByItsMarksOnly(t *testing.T) {
	vmtest.InGuest(t, vmtest.Config{Disks: []string{"128M"}, Modules: "ext4,dm-mod", Give: []string{"mke2fs", "dmsetup"}}, func(t *testing.T) {
		below, dir := vmtest.Device(t, "disk0"), t.TempDir()
		const name, mapped, syncs = "daybook-mapped", "/dev/mapper/daybook-mapped", 20
		t.Setenv("DM_DISABLE_UDEV", "1")
		if out, err := exec.Command("dmsetup", "create", name, "--table", "0 200000 linear "+below+" 0").CombinedOutput(); err != nil {
			t.Fatalf("dmsetup: %v: %s", err, out)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("dmsetup", "remove", name).CombinedOutput(); err != nil {
				t.Errorf("dmsetup: %v: %s", err, out)
			}
		})
		disk, err := blockdev.Lookup(below)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(ext4.Make(t.Context(), mapped, ext4.MakeOptions{}), ext4.Mount(mapped, dir, ext4.MountOptions{})); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		// The kernels of this test mark the journal.
		for what, open := range map[string]func() (*disktime.Probe, error){"with marks": disktime.Open, "without marks": disktime.OpenUnmarked} {
			probe := opened(t, open)
			f, err := os.Create(filepath.Join(dir, "f"))
			if err != nil {
				t.Fatal(err)
			}
			for range syncs {
				_, err = f.Write(make([]byte, 4096))
				if err := errors.Join(err, f.Sync()); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			sums, err := probe.Read(disk.Dev)
			if err != nil {
				t.Fatal(err)
			}
			var metadata uint64
			for key, sum := range sums {
				if key.Class == disktime.Metadata {
					metadata += sum.Requests
				}
			}
			if known := metadata >= syncs; known != (what == "with marks") {
				t.Errorf("%s: %d of the requests of %d commits are the journal's", what, metadata, syncs)
			}
		}
	})
}
