package volume_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/vm/vmtest"
	"github.com/daybook-project/daybook/volume"
)

// A thin pool that does not clear its chunks (lvcreate --zero n) gives a volume chunks with old
// content of the disk. Daybook clears what the volume needs as zeros.
func TestGuestVolumesInAThinPoolThatDoesNotClearItsChunks(t *testing.T) {
	vmtest.InGuest(t, vmtest.Config{
		Disks: []string{"256M", "512M"}, Modules: "ext4,bfq,loop,dm-mod,dm-snapshot,dm-thin-pool", Give: lvmPrograms, Fresh: true, OneKernel: true,
	}, func(t *testing.T) {
		ctx, pool := t.Context(), guestPool(t)
		group := newLVMGroup(t, vmtest.Device(t, "disk1"))
		group.run("lvcreate", "--yes", "--type", "thin-pool", "--zero", "n", "--chunksize", "512k", "--name", "tp", "--size", "300m", "--poolmetadatasize", "4m", group.name)
		dirty := func() {
			t.Helper()
			group.run("lvcreate", "--yes", "--type", "thin", "--thinpool", "tp", "--virtualsize", "300m", "--name", "old", group.name)
			old, err := os.OpenFile("/dev/"+group.name+"/old", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = old.Close() }()
			piece := bytes.Repeat([]byte{0xa5}, 1<<20)
			for range 300 { // all of it: the kernel takes first what was never used
				if _, err := old.Write(piece); err != nil {
					t.Fatal(err)
				}
			}
			if err := unix.Fsync(int(old.Fd())); err != nil {
				t.Fatal(err)
			}
			if err := old.Close(); err != nil {
				t.Fatal(err)
			}
			// Not discarded, the content is still on the disk.
			group.run("lvremove", "--yes", "--config", "devices/issue_discards=0", group.name+"/old")
		}
		whole := func(name string, entries int) {
			t.Helper()
			if report, err := pool.Check(ctx, name, volume.CheckOptions{}); err != nil || !report.Clean {
				t.Errorf("%s: %+v, %v", name, report, err)
			}
			at := filepath.Join(t.TempDir(), name)
			if _, err := pool.Attach(ctx, name, volume.AttachOptions{Target: at}); err != nil {
				t.Fatal(err)
			}
			fill(t, at, "more", 50)
			if names, err := os.ReadDir(at); err != nil || len(names) != entries+51 { // and lost+found
				t.Errorf("%s has %d entries, %v", name, len(names), err)
			}
			if err := pool.Detach(ctx, name); err != nil {
				t.Fatal(err)
			}
			if report, err := pool.Check(ctx, name, volume.CheckOptions{}); err != nil || !report.Clean {
				t.Errorf("%s: %+v, %v", name, report, err)
			}
			if err := pool.Delete(ctx, name, volume.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}

		if _, err := pool.Create(ctx, "image", volume.CreateOptions{SizeBytes: 64 << 20}); err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(t.TempDir(), "image")
		if _, err := pool.Attach(ctx, "image", volume.AttachOptions{Target: at}); err != nil {
			t.Fatal(err)
		}
		fill(t, at, "file", 100)
		if err := pool.Detach(ctx, "image"); err != nil {
			t.Fatal(err)
		}
		var stream bytes.Buffer
		if err := pool.Send(ctx, "image", "", "", &stream, volume.SendOptions{}); err != nil {
			t.Fatal(err)
		}
		dirty()
		// It compares the whole volume with the checksum of what was sent.
		if _, err := pool.Receive(ctx, "back", &stream, volume.ReceiveOptions{VolumeGroup: group.name, ThinPool: "tp"}); err != nil {
			t.Fatal(err)
		}
		whole("back", 100)
		dirty()
		if _, err := pool.Create(ctx, "new", volume.CreateOptions{SizeBytes: 64 << 20, VolumeGroup: group.name, ThinPool: "tp"}); err != nil {
			t.Fatal(err)
		}
		whole("new", 0)
		group.wantVolumes("in the end", 0)
	})
}
