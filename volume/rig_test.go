package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/jfs"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/placement"
)

// testBytes is the size of most volumes in tests.
const testBytes = 16 << 20

// rig is a pool in its own directory, and a place for mount points. At the end of
// the test, nothing of it may be left on the host.
type rig struct {
	t    testing.TB
	home string
	pool *Pool
	tree *cgroup.Tree
	// prefix starts the names of the rig's volumes and cgroups, and of no others.
	prefix string
	before []string
	// device is a device for volumes, if a test needs one.
	device string
}

var rigs atomic.Int32

// newRig makes a rig whose pool is on the host's own file system.
func newRig(t testing.TB) *rig {
	t.Helper()
	r := newHome(t)
	r.open(filepath.Join(r.home, "pool"))
	return r
}

// newHome makes a rig without a pool.
func newHome(t testing.TB) *rig {
	t.Helper()
	needs.Root(t)
	needs.Tool(t, "mke2fs")
	needs.Tool(t, "e2fsck")
	_, err := os.Stat("/dev/loop-control")
	needs.That(t, err == nil, "/dev/loop-control")
	tree, err := cgroup.Find()
	needs.That(t, err == nil, fmt.Sprintf("a cgroup hierarchy with block I/O: %v", err))
	recovery.Do(func() { recoverKilled(t, tree) })
	r := makeHome(t, tree, os.Getpid())
	t.Cleanup(r.end)
	return r
}

// homePrefix starts the name of each rig's home. The number of the process follows.
const homePrefix = "daybook-volume-"

// makeHome makes the home of a rig of a process.
func makeHome(t testing.TB, tree *cgroup.Tree, pid int) *rig {
	t.Helper()
	home, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", homePrefix, pid))
	if err != nil {
		t.Fatal(err)
	}
	if home, err = filepath.EvalSymlinks(home); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, home: home, tree: tree, prefix: fmt.Sprintf("%s%d-", cgroupPrefix(pid), rigs.Add(1))}
	r.before = r.host()
	if err := os.Mkdir(filepath.Join(home, "mnt"), 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

// cgroupPrefix starts the names of all volumes and cgroups of a process's rigs.
func cgroupPrefix(pid int) string { return fmt.Sprintf("dbt%d-", pid) }

var recovery sync.Once

// recoverKilled removes what the rigs of dead processes have left.
func recoverKilled(t testing.TB, tree *cgroup.Tree) {
	t.Helper()
	homes, err := filepath.Glob(filepath.Join(os.TempDir(), homePrefix+"*-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, home := range homes {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(home), homePrefix), "-")
		pid, err := strconv.Atoi(number)
		if err != nil || unix.Kill(pid, 0) == nil {
			continue
		}
		if home, err = filepath.EvalSymlinks(home); err != nil {
			t.Fatal(err)
		}
		r := &rig{t: t, home: home, tree: tree, prefix: cgroupPrefix(pid)}
		r.sweep()
		if err := os.RemoveAll(home); err != nil {
			t.Errorf("cannot remove the remains of a killed test: %v", err)
		}
	}
}

func (r *rig) open(dir string) {
	r.t.Helper()
	pool, err := Open(r.t.Context(), dir, PoolOptions{Create: true})
	if err != nil {
		r.t.Fatal(err)
	}
	r.pool = pool
}

// end detaches all volumes, and fails the test if anything is left.
func (r *rig) end() {
	ctx := context.Background()
	if r.pool != nil {
		if names, err := r.pool.files.Names(); err == nil {
			for _, name := range names {
				_ = r.pool.Detach(ctx, name)
			}
		}
	}
	left := minus(r.host(), r.before)
	if len(left) > 0 {
		r.t.Errorf("left on the host:\n%s", strings.Join(left, "\n"))
	}
	r.sweep()
	if err := os.RemoveAll(r.home); err != nil {
		r.t.Error(err)
	}
}

// sweep removes what a failed test left, but only what is below its home or has its
// prefix.
func (r *rig) sweep() {
	r.unmountBelow(r.home)
	r.unprotectBelow(filepath.Join(r.home, "mnt"))
	if loops, err := blockdev.Loops(); err == nil {
		for _, loop := range loops {
			if strings.HasPrefix(loop.File, r.home+"/") {
				_ = loop.DetachLazily()
			}
		}
	}
	cgroups := r.cgroups()
	for _, at := range slices.Backward(cgroups) {
		_ = r.tree.Remove(at)
	}
	_ = r.tree.Remove(placement.Root)
}

func (r *rig) unmountBelow(dir string) {
	mounts, _ := blockdev.Mounts()
	for _, mount := range slices.Backward(mounts) {
		if strings.HasPrefix(mount.Point, dir+"/") {
			_ = unix.Unmount(mount.Point, unix.MNT_DETACH)
		}
	}
}

// host lists the rig's loop devices, mounts and cgroups outside of its home, each
// with its owner, sorted.
func (r *rig) host() []string {
	r.t.Helper()
	var all []string
	loops, err := blockdev.Loops()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, loop := range loops {
		if strings.HasPrefix(loop.File, r.home+"/") {
			all = append(all, "loop of "+strings.TrimPrefix(loop.File, r.home))
		}
	}
	mounts, err := blockdev.Mounts()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, mount := range mounts {
		if strings.HasPrefix(mount.Point, r.home+"/") {
			all = append(all, "mount on "+strings.TrimPrefix(mount.Point, r.home))
		}
	}
	for _, at := range r.cgroups() {
		all = append(all, "cgroup "+at)
	}
	if r.parentIsLeft() {
		all = append(all, "cgroup "+placement.Root+", empty")
	}
	slices.Sort(all)
	return all
}

// parentIsLeft reports whether the common parent cgroup exists without children.
// Other tests may have volumes at the same time, and make or remove it just now:
// then it is not empty, or is gone, a moment later.
func (r *rig) parentIsLeft() bool {
	for range 100 {
		entries, err := os.ReadDir(r.tree.Root() + placement.Root)
		if err != nil || slices.ContainsFunc(entries, fs.DirEntry.IsDir) {
			return false
		}
		time.Sleep(2 * time.Millisecond)
	}
	return true
}

// cgroups lists the rig's, parents first.
func (r *rig) cgroups() []string {
	r.t.Helper()
	var all []string
	err := filepath.WalkDir(r.tree.Root(), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another test's, removed since
		}
		if err == nil && entry.IsDir() && strings.Contains(path, r.prefix) {
			all = append(all, strings.TrimPrefix(path, r.tree.Root()))
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// files lists the pool's files and directories.
func (r *rig) files() []string {
	r.t.Helper()
	var all []string
	err := filepath.WalkDir(r.pool.dir, func(path string, _ fs.DirEntry, err error) error {
		if path != r.pool.dir {
			all = append(all, strings.TrimPrefix(path, r.pool.dir+"/"))
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// minus returns the elements of a that are not in b, as often as a has them more
// often.
func minus(a, b []string) []string {
	b = slices.Clone(b)
	var rest []string
	for _, s := range a {
		if i := slices.Index(b, s); i >= 0 {
			b = slices.Delete(b, i, i+1)
			continue
		}
		rest = append(rest, s)
	}
	return rest
}

// wantSame fails the test if a listing differs from the wanted one.
func (r *rig) wantSame(what string, got, want []string) {
	r.t.Helper()
	more, less := minus(got, want), minus(want, got)
	if len(more)+len(less) > 0 {
		r.t.Errorf("%s: too much: %q, missing: %q", what, more, less)
	}
}

// wantNothingMore fails the test if the host has anything of the rig, or the pool
// has anything except these detached volumes.
func (r *rig) wantDetached(names ...string) {
	r.t.Helper()
	r.wantSame("host", r.host(), r.before)
	want := []string{store.PoolFile, store.VolumesDir, store.WorkDir}
	for _, name := range names {
		dir := filepath.Join(store.VolumesDir, name)
		want = append(want, dir)
		want = append(want, r.filesOf(name)...)
	}
	r.wantSame("pool", r.files(), want)
}

// filesOf lists what a volume without snapshots has in the pool.
func (r *rig) filesOf(name string) []string {
	dir := filepath.Join(store.VolumesDir, name)
	files := []string{filepath.Join(dir, store.RecordFile), filepath.Join(dir, store.SnapshotsDir)}
	if record, err := r.pool.files.Read(name); err != nil || record.InPool() {
		files = append(files, filepath.Join(dir, store.ImageFile))
	}
	return files
}

// name returns a unique name for a volume or cgroup.
func (r *rig) name(s string) string { return r.prefix + s }

// target is a mount point's path.
func (r *rig) target(s string) string { return filepath.Join(r.home, "mnt", s) }

func (r *rig) create(name string, o CreateOptions) Record {
	r.t.Helper()
	if o.SizeBytes == 0 && o.Device == "" {
		o.SizeBytes = testBytes
	}
	record, err := r.pool.Create(r.t.Context(), name, o)
	if err != nil {
		r.t.Fatal(err)
	}
	return record
}

// attach attaches at the target of the volume's name, unless another is given.
func (r *rig) attach(name string, o AttachOptions) Status {
	r.t.Helper()
	if o.Target == "" {
		o.Target = r.target(name)
	}
	status, err := r.pool.Attach(r.t.Context(), name, o)
	if err != nil {
		r.t.Fatal(err)
	}
	return status
}

func (r *rig) detach(name string) {
	r.t.Helper()
	if err := r.pool.Detach(r.t.Context(), name); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) repair() Repaired {
	r.t.Helper()
	done, err := r.pool.Repair(r.t.Context())
	if err != nil {
		r.t.Fatalf("%v: %+v", err, done)
	}
	if len(done.Busy) > 0 {
		r.t.Errorf("busy after the death of all others: %+v", done)
	}
	return done
}

func (r *rig) inspect(name string) Status {
	r.t.Helper()
	status, err := r.pool.Inspect(r.t.Context(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	return status
}

// wantClean fails the test if e2fsck, or fsck.jfs, finds anything. That includes a replay
// of the journal, which a detached volume does not need.
func (r *rig) wantClean(image string) {
	r.t.Helper()
	if _, err := jfs.ReadSuperblock(image); err == nil {
		if report, _, err := (jfs.Offline{Device: image}).Check(r.t.Context(), false); err != nil {
			r.t.Errorf("fsck.jfs -fn %s: %v: %s", image, err, report)
		}
		return
	}
	output, err := exec.Command("e2fsck", "-f", "-n", image).CombinedOutput()
	if err != nil || bytes.Contains(output, []byte("journal")) {
		r.t.Errorf("e2fsck -fn %s: %v: %s", image, err, output)
	}
}

// wantWhole fails the test if a volume is not as its record says: completely
// attached, or detached and clean.
func (r *rig) wantWhole(name string) Status {
	r.t.Helper()
	status := r.inspect(name)
	if status.Problem != "" {
		r.t.Errorf("%s: %s", name, status.Problem)
	}
	if a := status.Attachment; a == nil {
		r.wantClean(r.pool.blocks(status.Record).Node())
	} else if !status.Placed || !status.DirectIO || status.Mountpoint != a.Target || status.BlockDevice == "" || status.LoopDevice == "" && status.Record.InPool() {
		r.t.Errorf("%s is not attached with everything: %+v", name, status)
	}
	return status
}

// loopsOf finds all loop devices of a volume's image, whoever made them.
func (r *rig) loopsOf(name string) (found []blockdev.Loop, err error) {
	all, err := blockdev.Loops()
	for _, loop := range all {
		if loop.File == r.pool.files.Image(name) {
			found = append(found, loop)
		}
	}
	return found, err
}
