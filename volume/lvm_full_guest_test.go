package volume_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/vm/vmtest"
	"github.com/daybook-project/daybook/volume"
)

// used is how much of the thin pool tp is in use.
func (g lvmGroup) used() float64 {
	g.t.Helper()
	percent, err := strconv.ParseFloat(strings.TrimSpace(g.run("lvs", "--noheadings", "--options", "data_percent", g.name+"/tp")), 64)
	if err != nil {
		g.t.Fatal(err)
	}
	return percent
}

// What needs blocks of a thin pool that is nearly full is refused before anything changes. When
// the pool is full, writes fail, Daybook says why, and the data are there after it was extended.
func TestGuestAThinPoolFillsUp(t *testing.T) {
	vmtest.Long(t)
	vmtest.InGuest(t, vmtest.Config{
		Disks: []string{"256M", "512M"}, Modules: "ext4,bfq,loop,dm-mod,dm-snapshot,dm-thin-pool", Give: lvmPrograms, Fresh: true, OneKernel: true,
	}, func(t *testing.T) {
		ctx, pool := t.Context(), guestPool(t)
		group := newLVMGroup(t, vmtest.Device(t, "disk1"))
		group.run("lvcreate", "--yes", "--type", "thin-pool", "--name", "tp", "--size", "100m", "--poolmetadatasize", "4m", group.name)
		if err := os.WriteFile("/sys/module/dm_thin_pool/parameters/no_space_timeout", []byte("1"), 0); err != nil {
			t.Fatal(err) // otherwise writes wait for a minute
		}
		onLVM := volume.CreateOptions{SizeBytes: 2 << 30, VolumeGroup: group.name, ThinPool: "tp"}

		// An empty file system, whose inode tables and journal are zeros, is small.
		if _, err := pool.Create(ctx, "db", onLVM); err != nil {
			t.Fatal(err)
		}
		if used := group.used(); used > 5 {
			t.Errorf("an empty volume takes %.1f %% of 100 MiB", used)
		}
		var stream bytes.Buffer
		if err := pool.Send(ctx, "db", "", "", &stream, volume.SendOptions{}); err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(t.TempDir(), "db")
		attach := func() {
			t.Helper()
			if _, err := pool.Attach(ctx, "db", volume.AttachOptions{Target: target}); err != nil {
				t.Fatal(err)
			}
		}
		attach()
		fill(t, target, "before", 100)
		unix.Sync()

		// Another user of the thin pool leaves 1 or 2 MiB.
		group.run("lvcreate", "--yes", "--type", "thin", "--thinpool", "tp", "--virtualsize", "200m", "--name", "other", group.name)
		other, err := os.OpenFile("/dev/"+group.name+"/other", os.O_WRONLY|unix.O_DSYNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		piece := bytes.Repeat([]byte("x"), 1<<20)
		for group.used() < 98 {
			if _, err := other.Write(piece); err != nil {
				t.Fatal(err)
			}
		}
		refused := func(when string) {
			t.Helper()
			_, created := pool.Create(ctx, "more", onLVM)
			_, cloned := pool.Clone(ctx, "db", "", "more", volume.CloneOptions{})
			_, received := pool.Receive(ctx, "more", bytes.NewReader(stream.Bytes()), volume.ReceiveOptions{VolumeGroup: group.name, ThinPool: "tp"})
			record, resized := pool.Resize(ctx, "db", 3<<30, volume.ResizeOptions{})
			for what, err := range map[string]error{"create": created, "clone": cloned, "receive": received, "resize": resized} {
				if !errors.Is(err, volume.ErrNoSpace) || !strings.Contains(err.Error(), "thin pool vg0/tp ") || !strings.Contains(err.Error(), "lvextend") {
					t.Errorf("%s: %s: %v", when, what, err)
				}
			}
			if now, err := pool.Inspect(ctx, "db"); err != nil || now.SizeBytes != 2<<30 || now.Resize != 0 {
				t.Errorf("%s: %+v, %v; resize returned %+v", when, now.Record, err, record)
			}
			group.wantVolumes(when, 1)
			wantNoWork(t, pool)
		}
		refused("nearly full")

		// It is full.
		for err == nil {
			_, err = other.Write(piece)
		}
		full := os.WriteFile(filepath.Join(target, "full"), bytes.Repeat(piece, 8), 0o600)
		if file, err := os.Open(target); err == nil {
			full = errors.Join(full, unix.Fsync(int(file.Fd())), unix.Syncfs(int(file.Fd())))
			_ = file.Close()
		}
		if full == nil {
			t.Error("8 MiB were written to a full thin pool")
		}
		refused("full")
		if status, err := pool.Inspect(ctx, "db"); err != nil || !strings.HasPrefix(status.Problem, "its thin pool vg0/tp is full") {
			t.Errorf("%+v, %v", status, err)
		}
		// Its cause comes first when the file system has an error, too.
		awaittest.Until(t, awaittest.Patience, "the file system has recorded an error", func() bool {
			_ = os.WriteFile(filepath.Join(target, "full"), piece, 0o600) // it fails
			unix.Sync()
			status, err := pool.Inspect(ctx, "db")
			if err != nil || !strings.HasPrefix(status.Problem, "its thin pool vg0/tp is full") {
				t.Fatalf("%+v, %v", status, err)
			}
			return strings.Contains(status.Problem, "file system")
		})

		// What the documentation says to do.
		group.run("lvextend", "--quiet", "--yes", "--extents", "+50%LV", group.name+"/tp")
		if err := pool.Detach(ctx, "db"); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Check(ctx, "db", volume.CheckOptions{Repair: true}); err != nil {
			t.Fatal(err)
		}
		attach()
		if status, err := pool.Inspect(ctx, "db"); err != nil || status.Problem != "" {
			t.Errorf("%+v, %v", status, err)
		}
		entries, err := os.ReadDir(target)
		if err != nil || len(entries) < 101 { // and lost+found
			t.Errorf("%d entries, %v", len(entries), err)
		}
		fill(t, target, "after", 10)
		if err := pool.Detach(ctx, "db"); err != nil {
			t.Fatal(err)
		}
		if report, err := pool.Check(ctx, "db", volume.CheckOptions{}); err != nil || !report.Clean {
			t.Errorf("%+v, %v", report, err)
		}
		if err := pool.Delete(ctx, "db", volume.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		group.wantVolumes("in the end", 0)
	})
}
