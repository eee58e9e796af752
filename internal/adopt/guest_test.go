package adopt

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// On cgroup v2 a child of a cgroup that has processes has no controller of its own: the
// kernel charges its I/O to the container's cgroup.
func TestGuestJournalOfAMountedFileSystemIsAdoptedOnCgroupV2(t *testing.T) {
	vmtest.InGuest(t, vmtest.Config{
		Disks: []string{"128M"}, Modules: "ext4,bfq,loop", Give: []string{"mke2fs"}, OneKernel: true,
	}, func(t *testing.T) {
		tree, err := cgroup.Find()
		if err != nil || tree.Version() != cgroup.V2 {
			t.Fatalf("%v, %v; want cgroup v2", tree, err)
		}
		disk, err := blockdev.Lookup(vmtest.Device(t, "disk0"))
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "mnt")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := disk.SetScheduler(blockdev.BFQ); err != nil {
			t.Fatal(err)
		}
		if err := ext4.Make(t.Context(), disk.Node(), ext4.MakeOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := ext4.Mount(disk.Node(), dir, ext4.MountOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := ext4.Unmount(background(), dir); err != nil {
				t.Error(err)
			}
		})
		r := &rig{t: t, tree: tree, state: t.TempDir(), prefix: "/guest"}
		r.fs.Dir, r.fs.Disk.Disk = dir, disk
		c := r.container("db")
		k := r.keeper()
		w := Wanted{Filesystem: r.filesystem(), Cgroup: c.path, Weight: 300}
		r.keep(k, w)
		journal := r.journalOf(c.path)
		r.wantAt("placed", journal)
		if weight, err := os.ReadFile(tree.Root() + c.path + "/io.bfq.weight"); err != nil || !strings.Contains(string(weight), "300") {
			t.Errorf("io.bfq.weight is %q, %v", weight, err)
		}
		before := chargedWrites(t, tree, c.path, disk.Dev)
		const files = 300
		r.fill(files)
		charged := chargedWrites(t, tree, c.path, disk.Dev) - before
		if charged < files*256 {
			t.Errorf("%d bytes were charged to %s", charged, c.path)
		}
		t.Logf("%d files: %d bytes of the journal were charged to the container's cgroup", files, charged)
		r.freezable(k, c)
		r.keep(k, w)
		r.remount()
		r.keep(k, w)
		r.wantAt("remounted", journal)
		c.stop()
		if err := k.Keep(t.Context(), w); err == nil {
			t.Error("a container that has ended keeps the thread")
		}
		r.wantAt("ended", "/")
		if err := tree.Remove(c.path); err != nil {
			t.Errorf("the container's cgroup cannot be removed: %v", err)
		}
		// Killed, and undone by its guardian.
		if err := tree.Make(c.path); err != nil {
			t.Fatal(err)
		}
		c.start()
		victim := r.victim(order{Wanted: w, KillAt: -1, Guardian: true})
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		r.await("the victim places it", func() bool { return r.at() == journal })
		_ = victim.Process.Kill()
		_ = victim.Wait()
		r.await("the guardian releases it", func() bool { return r.at() == "/" })
		r.await("the record is gone", func() bool {
			names, err := r.store().Names()
			return err == nil && len(names) == 0
		})
	})
}

// freezable checks what the pages say of frozen containers with the journal's thread: the kernel
// freezes no kernel thread, and waits for all cgroups below that of a container without processes
// of its own.
func (r *rig) freezable(k *Keeper, own *fakeContainer) {
	r.t.Helper()
	nested := r.prefix + "-nested"
	inner := &fakeContainer{r: r, path: nested + "/init"}
	for _, at := range []string{nested, inner.path} {
		if err := r.tree.Make(at); err != nil {
			r.t.Fatal(err)
		}
	}
	defer func() {
		inner.stop()
		if err := errors.Join(k.Release(background(), r.filesystem().Name), r.tree.Remove(inner.path), r.tree.Remove(nested)); err != nil {
			r.t.Error(err)
		}
	}()
	inner.start()
	freeze := func(at, text string) {
		r.t.Helper()
		if err := os.WriteFile(r.tree.Root()+at+"/cgroup.freeze", []byte(text), 0); err != nil {
			r.t.Fatal(err)
		}
	}
	frozen := func(at string) bool {
		r.t.Helper()
		events, err := os.ReadFile(r.tree.Root() + at + "/cgroup.events")
		if err != nil || !strings.Contains(string(events), "\nfrozen ") {
			r.t.Fatalf("%q, %v", events, err)
		}
		return strings.Contains(string(events), "\nfrozen 1\n")
	}
	for at, warnings := range map[string]int{own.path: 0, nested: 1} {
		var log strings.Builder
		w := NewWatch(k, []Entry{{Mountpoint: r.fs.Dir, Cgroups: []string{at}}}, slog.New(slog.NewTextHandler(&log, nil)))
		for range 2 {
			w.entries[0].resolved, w.began = time.Time{}, time.Now()
			if err := w.once(background(), w.entries[0]); err != nil {
				r.t.Fatal(err)
			}
		}
		r.wantAt("watched", r.journalOf(at))
		if got := strings.Count(log.String(), "cannot be frozen"); got != warnings {
			r.t.Errorf("%s: %d warnings that it cannot be frozen; want %d:\n%s", at, got, warnings, log.String())
		}
		freeze(at, "1")
		if at == nested {
			r.await("the processes in the nested cgroup are frozen", func() bool { return frozen(inner.path) })
			if frozen(at) {
				r.t.Errorf("%s is frozen", at)
			}
		} else {
			r.await("a cgroup with processes of its own is frozen", func() bool { return frozen(at) })
		}
		freeze(at, "0")
		if err := k.Release(background(), r.filesystem().Name); err != nil {
			r.t.Fatal(err)
		}
	}
}

// chargedWrites are the bytes written that the kernel charged to a cgroup. The test's own
// writes are in another cgroup.
func chargedWrites(t *testing.T, tree *cgroup.Tree, at string, dev blockdev.Dev) uint64 {
	t.Helper()
	io, err := tree.IO(at)
	if err != nil {
		t.Fatal(err)
	}
	return io[dev].WriteBytes
}
