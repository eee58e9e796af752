package volume

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/records"
)

// wantError fails the test unless an error is of a kind, and its text contains what
// it should.
func wantError(t testing.TB, err, kind error, says string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), says) {
		t.Errorf("error %q, want one that is %q and says %q", err, kind, says)
	}
}

func TestNamesThatCannotBeAreRefused(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	for _, name := range []string{
		"", ".", "..", "/", "a/b", "../a", "a/../../etc", ".hidden", "-flag", "_x", "a b", "a\x00b", "a\nb", "ü", "a*",
		strings.Repeat("a", MaxNameBytes+1), strings.Repeat("a", 300), strings.Repeat("/", 300),
	} {
		_, err := r.pool.Create(ctx, name, CreateOptions{SizeBytes: testBytes})
		wantError(t, err, ErrInvalid, "name")
		_, err = r.pool.Attach(ctx, name, AttachOptions{Target: r.target("x")})
		wantError(t, err, ErrInvalid, "name")
		wantError(t, r.pool.Detach(ctx, name), ErrInvalid, "name")
		wantError(t, r.pool.Delete(ctx, name, DeleteOptions{Damaged: true}), ErrInvalid, "name")
		_, err = r.pool.Inspect(r.t.Context(), name)
		wantError(t, err, ErrInvalid, "name")
	}
	longest := (r.prefix + strings.Repeat("a", MaxNameBytes))[:MaxNameBytes]
	r.create(longest, CreateOptions{})
	r.attach(longest, AttachOptions{Target: r.target("x")})
	r.wantWhole(longest)
	_, err := r.pool.Create(ctx, longest, CreateOptions{SizeBytes: testBytes})
	wantError(t, err, ErrExists, longest)
	r.clear()
	_, err = r.pool.Attach(ctx, "nobody", AttachOptions{Target: r.target("x")})
	wantError(t, err, ErrNotFound, "nobody")
	wantError(t, r.pool.Detach(ctx, "nobody"), ErrNotFound, "nobody")
	wantError(t, r.pool.Delete(ctx, "nobody", DeleteOptions{}), ErrNotFound, "nobody")
}

// longLabels are few and short enough, but in JSON each byte takes six.
func longLabels() map[string]string {
	labels := map[string]string{}
	for n := range 64 {
		labels[fmt.Sprint(n)] = strings.Repeat("<", records.MaxLabelBytes-2)
	}
	return labels
}

func TestSizesAndOptionsThatCannotBeAreRefused(t *testing.T) {
	r := newRig(t)
	negative := int64(-1)
	for _, o := range []CreateOptions{
		{},
		{SizeBytes: 1},
		{SizeBytes: MinSizeBytes - chunk.UnitBytes},
		{SizeBytes: MinSizeBytes + 1},
		{SizeBytes: MaxSizeBytes + chunk.UnitBytes},
		{SizeBytes: uint64(negative)},
		{SizeBytes: math.MaxUint64 - 4095},
		{SizeBytes: 1 << 63},
		{SizeBytes: testBytes, Weight: 1001},
		{SizeBytes: testBytes, Weight: math.MaxUint64},
		{SizeBytes: testBytes, Provision: "thick"},
		{SizeBytes: testBytes, BlockSizeBytes: 512},
		{SizeBytes: testBytes, InodeSizeBytes: 100},
		{SizeBytes: testBytes, JournalBytes: 1<<20 + 1},
		{SizeBytes: testBytes, JournalBytes: 3 << 20},
		{SizeBytes: testBytes, BytesPerInode: 1023},
		{SizeBytes: testBytes, BytesPerInode: 64<<20 + 1},
		{SizeBytes: testBytes, JournalBytes: math.MaxUint64 &^ (1<<20 - 1)},
		{SizeBytes: testBytes, Mode: os.ModeSetuid | 0o755},
		{SizeBytes: testBytes, Labels: map[string]string{"": "x"}},
		{SizeBytes: testBytes, Labels: map[string]string{"a": strings.Repeat("x", records.MaxLabelBytes)}},
		{SizeBytes: testBytes, Labels: longLabels()},
	} {
		if _, err := r.pool.Create(t.Context(), r.name("v"), o); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	r.wantDetached()
}

func TestMountPointsThatCannotBeAreRefusedAndNothingIsLeft(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	file := filepath.Join(r.home, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dangling := filepath.Join(r.home, "dangling")
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}
	other := r.name("other")
	r.create(other, CreateOptions{})
	r.attach(other, AttachOptions{})
	for target, kind := range map[string]error{
		"":                                 ErrInvalid,
		"/":                                ErrInvalid,
		file:                               ErrInvalid,
		r.pool.dir:                         ErrInvalid,
		r.home:                             ErrInvalid,
		r.pool.files.VolumeDir(name):       ErrInvalid,
		filepath.Join(r.pool.dir, "x"):     ErrInvalid,
		r.target(other):                    ErrBusy,
		filepath.Join(r.home, "no/parent"): os.ErrNotExist,
		dangling:                           ErrInvalid,
	} {
		if _, err := r.pool.Attach(t.Context(), name, AttachOptions{Target: target}); !errors.Is(err, kind) {
			t.Errorf("target %q: %v, want %v", target, err, kind)
		}
		if a := r.inspect(name).Attachment; a != nil {
			t.Errorf("target %q: attached %+v", target, a)
		}
	}
	for _, o := range []AttachOptions{
		{Cgroup: "relative"}, {Cgroup: "/"}, {Cgroup: "/a/../b"}, {Cgroup: "/a/"}, {Placement: "elsewhere"}, {Placement: PlaceContainer},
		{Placement: PlaceNone, Cgroup: "/x"}, {Weight: 1001},
	} {
		o.Target = r.target(name)
		if _, err := r.pool.Attach(t.Context(), name, o); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if !exists(dangling) || !exists(file) {
		t.Error("what was in the place of a mount point is gone")
	}
	if _, err := r.pool.Attach(t.Context(), other, AttachOptions{Target: r.target("elsewhere")}); !errors.Is(err, ErrBusy) {
		t.Errorf("attached at a second place: %v", err)
	}
	if _, err := r.pool.Attach(t.Context(), other, AttachOptions{Target: r.target(other), Placement: PlaceNone}); !errors.Is(err, ErrBusy) {
		t.Errorf("attached in a second way: %v", err)
	}
	r.attach(other, AttachOptions{}) // once more, unchanged
	_, err := r.pool.Attach(t.Context(), other, AttachOptions{Target: r.target(other), Weight: 700})
	wantError(t, err, ErrBusy, "; weight 0, not 700; to change that, detach it first")
	_, err = r.pool.Attach(t.Context(), other, AttachOptions{Target: r.target(other), AllowCache: true, Persist: true})
	wantError(t, err, ErrBusy, "attached at "+r.target(other)+"; allow-cache false, not true")
	r.wantTidy()
	r.wantKept(name)
	r.clear()
}

// A mount point through a symbolic link is resolved, and a directory that existed
// before stays.
func TestAMountPointThatWasThereStays(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	real, link := filepath.Join(r.home, "with space\tand\\tab"), filepath.Join(r.home, "link")
	if err := errors.Join(os.Mkdir(real, 0o700), os.Symlink(real, link)); err != nil {
		t.Fatal(err)
	}
	if status := r.attach(name, AttachOptions{Target: link}); status.Mountpoint != real {
		t.Errorf("mounted on %q, want %q", status.Mountpoint, real)
	}
	r.wantWhole(name)
	r.detach(name)
	if !exists(real) || !exists(link) {
		t.Error("the mount point is gone")
	}
	r.clear()
}

func TestAPoolInMemoryIsRefused(t *testing.T) {
	r := newHome(t)
	dir := filepath.Join(r.home, "memory")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	_, err := Open(t.Context(), filepath.Join(dir, "pool"), PoolOptions{Create: true})
	wantError(t, err, ErrUnsupported, "tmpfs")
	_, err = Open(t.Context(), dir, PoolOptions{})
	wantError(t, err, ErrNotFound, dir)
	_, err = Open(t.Context(), filepath.Join(r.home, "none"), PoolOptions{})
	wantError(t, err, ErrNotFound, "none")
}

// If a pool was moved to a disk with larger sectors, its volumes with smaller ones
// have no direct I/O.
func TestWithoutDirectIOAttachingIsRefusedUnlessTheCacheIsAllowed(t *testing.T) {
	r := newHome(t)
	small := r.newDisk(96<<20, 512, "")
	large := r.newDisk(96<<20, 4096, "")
	r.open(filepath.Join(small.dir, "pool"))
	name, can := r.name("v"), r.name("can")
	r.keep(name, CreateOptions{BlockSizeBytes: 1024})
	r.keep(can, CreateOptions{})
	if output, err := exec.Command("cp", "-a", r.pool.dir, large.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	r.open(filepath.Join(large.dir, "pool"))
	_, err := r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target(name)})
	wantError(t, err, blockdev.ErrNoDirectIO, "--allow-cache")
	r.wantDetached(name, can)
	status := r.attach(name, AttachOptions{AllowCache: true})
	if status.DirectIO {
		t.Error("direct I/O after all")
	}
	if err := checkContent(filepath.Join(r.target(name), keptFile)); err != nil {
		t.Error(err)
	}
	// It works with blocks as large as the sectors.
	if status := r.attach(can, AttachOptions{}); !status.DirectIO {
		t.Error("no direct I/O")
	}
	r.wantKept(can)
	r.clear()
}

func TestAPoolOnADiskWithLargeSectorsHasDirectIO(t *testing.T) {
	r := newHome(t)
	disk := r.newDisk(96<<20, 4096, "")
	r.open(filepath.Join(disk.dir, "pool"))
	name := r.name("v")
	_, err := r.pool.Create(t.Context(), name, CreateOptions{SizeBytes: testBytes, BlockSizeBytes: 1024})
	wantError(t, err, ErrInvalid, "sectors of 4096 bytes")
	r.keep(name, CreateOptions{Provision: Full})
	if status := r.attach(name, AttachOptions{}); !status.DirectIO || status.SectorBytes != 4096 {
		t.Errorf("%+v", status)
	}
	r.wantKept(name)
	r.clear()
}
