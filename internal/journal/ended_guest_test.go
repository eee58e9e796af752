package journal

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// This runs on kernels where ext4 is a module, too.
func TestGuestUnmountDeletesItsEntriesInTheKernel(t *testing.T) {
	vmtest.InGuest(t, GuestConfig, func(t *testing.T) {
		disk, dir := vmtest.Device(t, "disk0"), t.TempDir()
		var st unix.Stat_t
		if err := unix.Stat(disk, &st); err != nil {
			t.Fatal(err)
		}
		mount := func() {
			t.Helper()
			if err := ext4.Make(t.Context(), disk, ext4.MakeOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := ext4.Mount(disk, dir, ext4.MountOptions{NoAtime: true}); err != nil {
				t.Fatal(err)
			}
		}
		mount()
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		unmountTakesItsEntries(t, loadForThisKernel(t), blockdev.DevOf(st.Rdev).Kernel(), dir, func() {
			if err := ext4.Unmount(t.Context(), dir); err != nil {
				t.Fatal(err)
			}
			mount()
		})
	})
}
