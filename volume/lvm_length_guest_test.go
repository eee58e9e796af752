package volume_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/volume"
)

// lvmLengthened resizes a volume whose logical volume, and then its file system, too, an
// administrator has made longer by hand.
func lvmLengthened(t *testing.T, pool *volume.Pool, group lvmGroup, thinPool string) {
	ctx := t.Context()
	record, err := pool.Create(ctx, "long", volume.CreateOptions{SizeBytes: 64 << 20, VolumeGroup: group.name, ThinPool: thinPool})
	if err != nil {
		t.Fatal(err)
	}
	lv := group.name + "/daybook-" + record.ID
	wantSizes := func(when string, recorded, blocks int) {
		t.Helper()
		size := strings.TrimSpace(group.run("lvs", "--noheadings", "--units", "b", "--nosuffix", "--options", "lv_size", lv))
		status, err := pool.Inspect(ctx, "long")
		if err != nil || status.SizeBytes != uint64(recorded) || status.Resize != 0 || size != fmt.Sprint(blocks) {
			t.Errorf("%s: %d bytes are recorded, resize to %d, and the logical volume has %s, %v; want %d and %d", when, status.SizeBytes, status.Resize, size, err, recorded, blocks)
		}
	}
	wantFiles := func(want int, do func()) {
		t.Helper()
		at := filepath.Join(t.TempDir(), "long")
		if _, err := pool.Attach(ctx, "long", volume.AttachOptions{Target: at}); err != nil {
			t.Fatal(err)
		}
		do()
		if entries, err := os.ReadDir(at); err != nil || len(entries) != want+1 { // and lost+found
			t.Errorf("%d entries, %v; want %d", len(entries), err, want)
		}
		if err := pool.Detach(ctx, "long"); err != nil {
			t.Fatal(err)
		}
		if report, err := pool.Check(ctx, "long", volume.CheckOptions{}); err != nil || !report.Clean {
			t.Errorf("%+v, %v", report, err)
		}
	}
	refused := func() {
		t.Helper()
		if _, err := pool.Resize(ctx, "long", 112<<20, volume.ResizeOptions{}); !errors.Is(err, volume.ErrInvalid) || !strings.Contains(err.Error(), "its file system has 134217728 bytes already (--size 134217728)") {
			t.Errorf("a file system of 128 MiB, made 112 MiB long: %v", err)
		}
		wantSizes("refused", 80<<20, 128<<20)
	}

	group.run("lvextend", "--size", "96m", lv)
	t.Run("rolled back", func(t *testing.T) {
		few := t.TempDir()
		for _, name := range []string{"e2fsck", "e2undo", "lvs", "vgs", "lvextend", "lvreduce"} { // no resize2fs
			path, err := exec.LookPath(name)
			if err == nil {
				err = os.Symlink(path, filepath.Join(few, name))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", few+":/bin") // and a shell
		if path, err := exec.LookPath("resize2fs"); err == nil {
			t.Fatalf("there is %s", path)
		}
		if _, err := pool.Resize(ctx, "long", 128<<20, volume.ResizeOptions{}); err == nil {
			t.Error("it grew without resize2fs")
		}
	})
	wantSizes("rolled back", 64<<20, 96<<20)
	if _, err := pool.Resize(ctx, "long", 80<<20, volume.ResizeOptions{}); err != nil {
		t.Error(err)
	}
	wantSizes("in a longer logical volume", 80<<20, 96<<20)

	group.run("lvextend", "--size", "128m", lv)
	group.run("resize2fs", "/dev/"+lv)
	refused()
	wantFiles(100, func() {
		status, err := pool.Inspect(ctx, "long")
		if err != nil {
			t.Fatal(err)
		}
		fill(t, status.Attachment.Target, "", 100)
		refused()
	})
	if _, err := pool.Resize(ctx, "long", 128<<20, volume.ResizeOptions{}); err != nil {
		t.Error(err)
	}
	wantSizes("adopted", 128<<20, 128<<20)
	wantFiles(100, func() {})
	if err := pool.Delete(ctx, "long", volume.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	group.wantVolumes("deleted", 0)
}
