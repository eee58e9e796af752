package survey

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/vm/vmtest"
)

func TestGuestAFileSystemOnAMappedDeviceIsKnownFromOneOnItsDisk(t *testing.T) {
	config := vmtest.Config{Disks: []string{"128M", "128M"}, Modules: "ext4,dm-mod", Give: []string{"mke2fs", "dmsetup"}, OneKernel: true}
	vmtest.InGuest(t, config, func(t *testing.T) {
		below, direct := vmtest.Device(t, "disk0"), vmtest.Device(t, "disk1")
		const name, mapped = "daybook-mapped", "/dev/mapper/daybook-mapped"
		t.Setenv("DM_DISABLE_UDEV", "1")
		if out, err := exec.Command("dmsetup", "create", name, "--table", "0 200000 linear "+below+" 0").CombinedOutput(); err != nil {
			t.Fatalf("dmsetup: %v: %s", err, out)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("dmsetup", "remove", name).CombinedOutput(); err != nil {
				t.Errorf("dmsetup: %v: %s", err, out)
			}
		})
		for node, want := range map[string]bool{mapped: true, direct: false} {
			dir := t.TempDir()
			if err := errors.Join(ext4.Make(t.Context(), node, ext4.MakeOptions{}), ext4.Mount(node, dir, ext4.MountOptions{})); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, 0); err != nil {
					t.Error(err)
				}
			})
			disk, err := blockdev.Lookup(node)
			if err != nil {
				t.Fatal(err)
			}
			found, err := Of(disk.Name)
			if err != nil || found.Mapped != want || found.DropsFlags != "" {
				t.Errorf("%s: %+v, %v; want mapped %v", node, found, err, want)
			}
		}
	})
}
