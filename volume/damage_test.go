package volume

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/internal/store"
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
		{SizeBytes: testBytes, JournalBytes: math.MaxUint64 &^ (1<<20 - 1)},
		{SizeBytes: testBytes, Mode: os.ModeSetuid | 0o755},
		{SizeBytes: testBytes, Labels: map[string]string{"": "x"}},
		{SizeBytes: testBytes, Labels: map[string]string{"a": strings.Repeat("x", records.MaxLabelBytes)}},
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

func TestAFullPoolLosesNothingAndCanBeEmptied(t *testing.T) {
	r := newHome(t)
	// -m 0: no blocks are reserved for root.
	disk := r.newDisk(96<<20, 512, "", "-m", "0")
	r.open(filepath.Join(disk.dir, "pool"))
	kept, thin, spare := r.name("kept"), r.name("thin"), r.name("spare")
	r.keep(kept, CreateOptions{Provision: Full})
	r.create(spare, CreateOptions{Provision: Full})
	r.create(thin, CreateOptions{SizeBytes: 64 << 20})
	r.attach(thin, AttachOptions{})
	if err := writeSynced(filepath.Join(r.target(thin), keptFile)); err != nil {
		t.Fatal(err)
	}
	r.attach(kept, AttachOptions{})

	_, err := r.pool.Create(t.Context(), r.name("big"), CreateOptions{SizeBytes: 256 << 20, Provision: Full})
	wantError(t, err, ErrNoSpace, "allocate")
	r.wantTidy()

	fillUp(t, filepath.Join(disk.dir, "ballast"))
	// A thin volume finds out when it writes.
	file, err := os.Create(filepath.Join(r.target(thin), "more"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		if _, err = file.Write(make([]byte, 1<<20)); err == nil {
			err = file.Sync()
		}
	}
	_ = file.Close()
	t.Logf("writing to a thin volume in a full pool: %v", err)

	_, err = r.pool.Create(t.Context(), r.name("new"), CreateOptions{SizeBytes: testBytes})
	if !errors.Is(err, ErrNoSpace) {
		t.Errorf("created in a full pool: %v", err)
	}
	_, err = r.pool.Attach(t.Context(), spare, AttachOptions{Target: r.target(spare)})
	if !errors.Is(err, ErrNoSpace) {
		t.Errorf("attached in a full pool: %v", err)
	}
	r.wantTidy()
	// The commands that make room work.
	if err := r.pool.Detach(t.Context(), kept); err != nil {
		t.Error(err)
	}
	if loops, err := r.loopsOf(kept); err != nil || len(loops) > 0 {
		t.Errorf("%v, %v", loops, err)
	}
	if err := r.pool.Delete(t.Context(), spare, DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := checkContent(filepath.Join(r.target(thin), keptFile)); err != nil {
		t.Error(err)
	}
	r.detach(thin)
	r.repair()
	r.wantDetached(kept, thin)
	r.wantKept(kept)
	// The journal of the thin volume was cut short: e2fsck has something to do, but
	// what was synced is there.
	r.attach(thin, AttachOptions{})
	if err := checkContent(filepath.Join(r.target(thin), keptFile)); err != nil {
		t.Error(err)
	}
	r.clear()
}

// fillUp takes all the space that a file system has left.
func fillUp(t testing.TB, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, piece := range []int{1 << 20, 4096} {
		for err = error(nil); err == nil; {
			if _, err = file.Write(make([]byte, piece)); err == nil {
				err = file.Sync()
			}
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// This includes a volume whose record can no longer say that it is detached.
func TestAVolumeCanBeDeletedWithoutRoomForItsRecord(t *testing.T) {
	r := newHome(t)
	disk := r.newDisk(64<<20, 512, "", "-m", "0")
	r.open(filepath.Join(disk.dir, "pool"))
	name := r.name("v")
	r.create(name, CreateOptions{Provision: Full})
	r.attach(name, AttachOptions{})
	fillUp(t, filepath.Join(disk.dir, "ballast"))
	r.detach(name)
	r.wantSame("host", r.host(), r.before)
	if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
		t.Error(err)
	}
	r.wantDetached()
}

func TestADetachedVolumeWithoutItsImageIsReportedAndCanBeDeleted(t *testing.T) {
	r := newRig(t)
	name, short := r.name("v"), r.name("short")
	for _, name := range []string{name, short} {
		r.create(name, CreateOptions{})
	}
	if err := errors.Join(os.Remove(r.pool.files.Image(name)), os.Truncate(r.pool.files.Image(short), testBytes/2)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{name, short} {
		_, err := r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target(name)})
		wantError(t, err, ErrCorrupt, "image")
		done, err := r.pool.Repair(t.Context())
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(done.Damaged[name], "image") {
			t.Errorf("%+v, %v", done, err)
		}
		if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	r.wantDetached()
}

// As long as it is mounted, the data exist. Detaching would lose them.
func TestAnAttachedVolumeWithoutItsImageIsNotDetached(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	loop := r.attach(name, AttachOptions{}).LoopDevice
	if err := os.Remove(r.pool.files.Image(name)); err != nil {
		t.Fatal(err)
	}
	err := r.pool.Detach(t.Context(), name)
	wantError(t, err, ErrCorrupt, "cp --sparse=always "+loop)
	if done, err := r.pool.Repair(t.Context()); err != nil {
		t.Errorf("%+v, %v", done, err)
	}
	if status := r.inspect(name); status.Problem == "" || status.Mountpoint == "" {
		t.Errorf("%+v", status)
	}
	if err := checkContent(filepath.Join(r.target(name), keptFile)); err != nil {
		t.Error(err)
	}
	// As the error advises.
	unix.Sync()
	if output, err := exec.Command("cp", "--sparse=always", loop, r.pool.files.Image(name)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	r.detach(name)
	r.attach(name, AttachOptions{})
	if err := checkContent(filepath.Join(r.target(name), keptFile)); err != nil {
		t.Error(err)
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

func TestOnlyOneKeeperOfAPool(t *testing.T) {
	r := newRig(t)
	first, err := r.pool.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.pool.Keeper()
	wantError(t, err, ErrBusy, "another daemon")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	second, err := r.pool.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// The keeper notices a change of the record at once, also within the kernel's clock
// tick, and the thread of a new mount.
func TestTheKeeperPutsTheThreadBack(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	keeper, err := r.pool.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = keeper.Close() }()
	for range 3 {
		keeper.Once()
		status := r.attach(name, AttachOptions{})
		keeper.Once()
		if err := r.tree.Move(status.JBD2PID, "/"); err != nil {
			t.Fatal(err)
		}
		if r.inspect(name).Placed {
			t.Error("a thread in the root cgroup is called placed")
		}
		keeper.Once()
		r.wantWhole(name)
		// A new mount, and a cgroup that was removed.
		if err := ext4.Unmount(t.Context(), r.target(name)); err != nil {
			t.Fatal(err)
		}
		keeper.Once()
		if err := r.tree.Remove(status.JournalCgroup); err != nil {
			t.Fatal(err)
		}
		if err := ext4.Mount(status.LoopDevice, r.target(name), ext4.MountOptions{}); err != nil {
			t.Fatal(err)
		}
		keeper.Once()
		r.wantWhole(name)
		r.detach(name)
		keeper.Once()
		r.wantDetached(name)
	}
}

// In the rounds that skip volumes in parents' cgroups, their reported problems are not
// forgotten.
func TestTheKeeperReportsAProblemOnce(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	target := r.attach(name, AttachOptions{}).Mountpoint
	keeper, err := r.pool.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	r.pool.log = slog.New(slog.NewTextHandler(&said, nil))
	if err := unix.Unmount(target, 0); err != nil { // and the thread with it
		t.Fatal(err)
	}
	for turn := range 2*parentTurns + 1 {
		keeper.look(turn%parentTurns == 0)
	}
	if n := strings.Count(said.String(), "cannot keep the volume"); n != 1 {
		t.Errorf("told %d times, want once:\n%s", n, said.String())
	}
	if err := keeper.Close(); err != nil {
		t.Error(err)
	}
	r.detach(name)
}

// The keeper does not trust the time of a file that it read right after it was
// written: the next write may have the same time.
func TestTheKeeperReadsAYoungRecordAgain(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	record := r.create(name, CreateOptions{})
	keeper, err := r.pool.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = keeper.Close() }()
	tick := time.Now()
	for weight := uint64(1); weight <= 3; weight++ {
		record.Weight = weight
		file := filepath.Join(r.pool.files.VolumeDir(name), store.RecordFile)
		if err := errors.Join(r.pool.files.Write(record), os.Chtimes(file, tick, tick)); err != nil {
			t.Fatal(err)
		}
		kept, err := keeper.read(name)
		if err != nil || kept.record.Weight != weight {
			t.Errorf("%+v, %v; want weight %d", kept, err, weight)
		}
	}
}

// elsewhere is a process in its own mount namespace, such as a container.
type elsewhere struct {
	command *exec.Cmd
	input   io.Closer
}

// newElsewhere starts such a process, which has a copy of all mounts.
func newElsewhere(t testing.TB) elsewhere {
	t.Helper()
	return newElsewhereAs(t)
}

// end ends it. A second call does nothing.
func (e elsewhere) end() {
	_ = e.input.Close()
	_ = e.command.Wait()
}

// A starting container has copies of all the host's mounts for a moment. The
// detaching of another container's volume must not fail because of that.
func TestADetachOutwaitsAContainersStart(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	r.attach(name, AttachOptions{})
	time.AfterFunc(50*time.Millisecond, newElsewhere(t).end)
	if err := r.pool.Detach(t.Context(), name); err != nil {
		t.Error(err)
	}
	r.wantDetached(name)
	// One that starts right after the check found none.
	r.attach(name, AttachOptions{})
	p := *r.pool
	var other elsewhere
	p.engine.Stop = func(step string) {
		switch step {
		case "detaching":
			other = newElsewhere(t)
		case "mounted undone":
			time.AfterFunc(50*time.Millisecond, other.end)
		}
	}
	if err := p.Detach(t.Context(), name); err != nil {
		t.Error(err)
	}
	r.wantDetached(name)
	// And one that stays: the volume is attached again as before.
	r.attach(name, AttachOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.engine.Stop = func(step string) {
		switch step {
		case "detaching":
			other = newElsewhere(t)
		case "mounted undone":
			time.AfterFunc(50*time.Millisecond, cancel)
		}
	}
	wantError(t, p.Detach(ctx, name), ErrBusy, "another mount namespace")
	r.wantWhole(name)
	other.end()
	r.wantKept(name)
}

func TestABusyVolumeStaysAttached(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	wantStays := func(says string) {
		t.Helper()
		// The patience of unmounting is for the short time in which others end.
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		wantError(t, r.pool.Detach(ctx, name), ErrBusy, says)
		wantError(t, r.pool.Delete(t.Context(), name, DeleteOptions{}), ErrBusy, "attached")
		if a := r.wantWhole(name).Attachment; a == nil || a.State != Attached {
			t.Errorf("%+v", a)
		}
		if err := checkContent(filepath.Join(r.target(name), keptFile)); err != nil {
			t.Error(err)
		}
		if done := r.repair(); len(done.Volumes) > 0 {
			t.Errorf("%+v", done)
		}
	}
	r.attach(name, AttachOptions{})

	file, err := os.Open(filepath.Join(r.target(name), keptFile))
	if err != nil {
		t.Fatal(err)
	}
	wantStays("cannot unmount")
	_ = file.Close()

	elsewhere := filepath.Join(r.home, "elsewhere")
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(r.target(name), elsewhere, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	wantStays(elsewhere)
	if err := unix.Unmount(elsewhere, 0); err != nil {
		t.Fatal(err)
	}

	over := func() error { return unix.Mount("tmpfs", r.target(name), "tmpfs", 0, "size=1m") }
	if err := over(); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.pool.Detach(t.Context(), name), ErrBusy, "something else is mounted over it")
	if err := unix.Unmount(r.target(name), 0); err != nil { // it still exists
		t.Fatal(err)
	}

	other := newElsewhere(t)
	wantStays("has it in another mount namespace")
	wantStays("has it in another mount namespace")
	other.end()
	r.clear()
}

// If a container's mount namespace has the volume, and the detaching is killed, the
// volume is not damaged: it is busy until the container ends.
func TestAKilledDetachOfABusyVolumeEndsWithItsUser(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	r.attach(name, AttachOptions{})
	other := newElsewhere(t)
	// Like one that is killed after the unmount.
	r.lie(name, func(record *Record) { record.Attachment.State = Detaching })
	if err := ext4.Unmount(t.Context(), r.target(name)); err != nil {
		t.Fatal(err)
	}
	var done Repaired
	var err error
	for wait := 200 * time.Millisecond; wait < time.Minute; wait *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		done, err = r.pool.Repair(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			break // else a busy host stopped it before its begin
		}
	}
	if err != nil || !slices.Equal(done.Busy, []string{name}) {
		t.Errorf("%+v, %v", done, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = r.pool.Attach(ctx, name, AttachOptions{Target: r.target(name)})
	wantError(t, err, ErrBusy, "mount namespace")
	other.end()
	awaittest.Until(t, awaittest.Patience, "the loop device is free", func() bool {
		done, err := r.pool.Repair(t.Context())
		return err == nil && len(done.Busy) == 0
	})
	r.wantDetached(name)
	r.wantKept(name)
}

func TestLocksEndWithTheirProcessAndOthersWait(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	l, err := store.LockDirectory(r.pool.files.VolumeDir(name))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = r.pool.Attach(ctx, name, AttachOptions{Target: r.target(name)})
	wantError(t, err, ErrBusy, "another daybook")
	wantError(t, err, context.DeadlineExceeded, name)
	patience := repairPatience
	repairPatience = time.Second
	done, err := r.pool.Repair(t.Context())
	repairPatience = patience
	if err != nil || !slices.Equal(done.Busy, []string{name}) {
		t.Errorf("%+v, %v", done, err)
	}
	if status := r.inspect(name); status.Problem != "" { // reading needs no lock
		t.Errorf("%+v", status)
	}
	l.Release()
	// A victim dies in the middle of its work, with the lock.
	if !r.killed(order{Operation: "attach", Name: name, Attach: AttachOptions{Target: r.target(name)}, KillAt: 3}) {
		t.Fatal("it was not killed")
	}
	r.attach(name, AttachOptions{})
	r.clear()
}

func TestOfTwoProcessesThatAttachOneDoes(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	for round := range 5 {
		victims := make([]*exec.Cmd, 2)
		for i := range victims {
			victims[i] = r.victim(order{Operation: "attach", Name: name, Attach: AttachOptions{Target: r.target(fmt.Sprint(name, i))}, KillAt: -1})
			if err := victims[i].Start(); err != nil {
				t.Fatal(err)
			}
		}
		done := 0
		for _, victim := range victims {
			if victim.Wait() == nil {
				done++
			}
		}
		loops, err := r.loopsOf(name)
		if done != 1 || len(loops) != 1 || err != nil {
			t.Errorf("round %d: %d attached it; %v, %v", round, done, loops, err)
		}
		r.wantWhole(name)
		r.wantSame("host", r.host(), r.expected())
		r.detach(name)
		r.wantDetached(name)
	}
	r.wantKept(name)
}

func TestTheQuotaIsNeverExceeded(t *testing.T) {
	r := newHome(t)
	// The name of a directory is not used as a pattern.
	r.open(filepath.Join(r.home, "a [pool] of *"))
	const fit = 5
	if err := r.pool.SetQuota(t.Context(), fit*testBytes+testBytes/2); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var most uint64
	var watcher, creators sync.WaitGroup
	watcher.Go(func() {
		for {
			usage, err := r.pool.Usage()
			if err != nil {
				t.Error(err)
			}
			most = max(most, usage.PromisedBytes)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for n := range 20 {
		creators.Go(func() {
			_, err := r.pool.Create(t.Context(), r.name(fmt.Sprint("v", n)), CreateOptions{SizeBytes: testBytes})
			if err != nil && !errors.Is(err, ErrNoSpace) {
				t.Error(err)
			}
		})
	}
	creators.Wait()
	close(stop)
	watcher.Wait()
	names, err := r.pool.files.Names()
	if err != nil || len(names) != fit {
		t.Errorf("%d volumes, %v; %d have room", len(names), err, fit)
	}
	if most > fit*testBytes {
		t.Errorf("%d bytes were promised, the quota has room for %d", most, fit*testBytes)
	}
	r.wantTidy()
	r.clear()
}

func TestAForeignLoopDeviceOnTheImageIsNeverDetached(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	foreign, err := blockdev.Attach(r.pool.files.Image(name), blockdev.AttachOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	wantThere := func() {
		t.Helper()
		if file, err := foreign.BackingFile(); err != nil || file != r.pool.files.Image(name) {
			t.Errorf("%s has %q, %v", foreign.Name, file, err)
		}
	}
	_, err = r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target(name)})
	wantError(t, err, ErrBusy, foreign.Path())
	wantError(t, r.pool.Delete(t.Context(), name, DeleteOptions{}), ErrBusy, foreign.Path())
	r.repair()
	wantThere()
	if err := foreign.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}

	// One that starts later, and exists while a death is cleared up.
	for _, kill := range []int{1, 3} {
		if !r.killed(order{Operation: "attach", Name: name, Attach: AttachOptions{Target: r.target(name)}, KillAt: kill}) {
			t.Fatal("it was not killed")
		}
		if foreign, err = blockdev.Attach(r.pool.files.Image(name), blockdev.AttachOptions{ReadOnly: true}); err != nil {
			t.Fatal(err)
		}
		r.repair()
		wantThere()
		if own, err := r.loopsOf(name); err != nil || len(own) != 1 {
			t.Errorf("%v, %v", own, err)
		}
		if err := foreign.Detach(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.attach(name, AttachOptions{})
	if foreign, err = blockdev.Attach(r.pool.files.Image(name), blockdev.AttachOptions{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	r.wantWhole(name)
	r.repair()
	r.detach(name)
	wantThere()
	if err := foreign.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wantDetached(name)
	r.wantKept(name)
}

// A pool that has another path, as in a container, is the same pool.
func TestAPoolUnderAnotherPathIsTheSame(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	other := filepath.Join(r.home, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(r.pool.dir, other, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(other, 0) })
	there, err := Open(t.Context(), other, PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.attach(name, AttachOptions{})
	status, err := there.Inspect(t.Context(), name)
	if err != nil || status.Problem != "" || !status.Placed {
		t.Errorf("%+v, %v", status, err)
	}
	if _, err := there.Attach(t.Context(), name, AttachOptions{Target: r.target("x")}); !errors.Is(err, ErrBusy) {
		t.Errorf("attached twice: %v", err)
	}
	if done, err := there.Repair(t.Context()); err != nil || len(done.Volumes) > 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if err := there.Detach(t.Context(), name); err != nil {
		t.Error(err)
	}
	r.wantSame("host", r.host(), append(slices.Clone(r.before), "mount on /other"))
}

// Whatever ends an operation's context at a step: it is done completely or not at
// all, and needs no repair.
func TestCancelledAtEachStepNothingIsHalfDone(t *testing.T) {
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			steps := r.stepsOf(c)
			done := 0
			for at, step := range steps {
				name, o := r.begin(c)
				ctx, cancel := context.WithCancel(t.Context())
				p, n := *r.pool, 0
				p.engine.Stop = func(string) {
					if n == at {
						cancel()
					}
					n++
				}
				err := operations[o.Operation](ctx, &p, o)
				if err == nil {
					done++
				} else if !errors.Is(err, context.Canceled) && !c.fails {
					t.Errorf("cancelled at %q: %v", step, err)
				}
				r.wantTidy()
				there := exists(r.pool.files.VolumeDir(name))
				if c.existed && !there && err != nil || !c.existed && there != (err == nil) {
					t.Errorf("cancelled at %q: %v, and the volume is there: %v", step, err, there)
				}
				if there {
					r.wantWhole(name)
					if c.after != nil {
						c.after(r, name)
					}
					if c.existed {
						r.wantKept(name)
					}
				}
				r.clear()
				if t.Failed() {
					t.Fatalf("cancelled at step %d, %q, of %q", at, step, steps)
				}
			}
			t.Logf("%d of %d were done all the same", done, len(steps))
		})
	}
}

// Another process, such as udev, has the loop device open when the detaching is
// cancelled. The kernel detaches the file when that process closes it; then the
// volume is detached.
func TestACancelledDetachWaitsForTheLastUserOfTheLoopDevice(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	loop := r.attach(name, AttachOptions{}).LoopDevice
	user, err := os.Open(loop)
	if err != nil {
		t.Fatal(err)
	}
	autoclear := filepath.Join("/sys/block", filepath.Base(loop), "loop/autoclear")
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan error)
	p := *r.pool
	p.engine.Stop = func(step string) {
		if step != "mounted undone" {
			return
		}
		cancel()
		go func() {
			text := []byte("0")
			for ctx := t.Context(); ctx.Err() == nil && string(text) == "0"; time.Sleep(time.Millisecond) {
				raw, _ := os.ReadFile(autoclear)
				text = bytes.TrimSpace(raw)
			}
			closed <- user.Close()
		}()
	}
	if err := p.Detach(ctx, name); err != nil {
		t.Errorf("cancelled while %s was open: %v", loop, err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	r.wantDetached(name)
	r.wantKept(name)
}

// As a crash leaves it: synced data are still in the journal, and the record says
// detached, or what was in progress.
func TestARepairReplaysTheJournal(t *testing.T) {
	for _, state := range []AttachState{"", Attaching, Attached, Detaching} {
		t.Run(cmp.Or(string(state), "detached"), func(t *testing.T) { repairReplays(t, state) })
	}
}

func repairReplays(t *testing.T, state AttachState) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	loop := r.attach(name, AttachOptions{}).LoopDevice
	if err := writeSynced(filepath.Join(r.target(name), keptFile)); err != nil {
		t.Fatal(err)
	}
	record, err := r.pool.files.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	crashed := filepath.Join(r.home, "crashed")
	if output, err := exec.Command("dd", "if="+loop, "of="+crashed, "bs=1M", "iflag=direct").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	r.detach(name)
	if err := os.Rename(crashed, r.pool.files.Image(name)); err != nil {
		t.Fatal(err)
	}
	if s, err := ext4.ReadSuperblock(r.pool.files.Image(name)); err != nil || !s.NeedsRecovery {
		t.Fatalf("%+v, %v", s, err)
	}
	if state != "" {
		record.Attachment.State = state
		if err := r.pool.files.Write(record); err != nil {
			t.Fatal(err)
		}
	}
	if done := r.repair(); !strings.Contains(done.Volumes[name], "journal replayed") {
		t.Errorf("%+v", done)
	}
	if done := r.repair(); len(done.Volumes) > 0 {
		t.Errorf("%+v", done)
	}
	r.wantClean(r.pool.files.Image(name))
	r.wantKept(name)
}

func TestWhatTheUserRemovedIsReported(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	status := r.attach(name, AttachOptions{})
	if err := ext4.Unmount(t.Context(), r.target(name)); err != nil {
		t.Fatal(err)
	}
	if status := r.inspect(name); !strings.Contains(status.Problem, "repair") || status.Mountpoint != "" {
		t.Errorf("%+v", status)
	}
	if done := r.repair(); done.Volumes[name] == "" {
		t.Errorf("%+v", done)
	}
	r.wantDetached(name)
	// This includes the loop device.
	status = r.attach(name, AttachOptions{})
	if err := ext4.Unmount(t.Context(), r.target(name)); err != nil {
		t.Fatal(err)
	}
	loops, err := r.loopsOf(name)
	if err != nil || len(loops) != 1 || loops[0].Path() != status.LoopDevice {
		t.Fatalf("%v, %v", loops, err)
	}
	if err := loops[0].Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.attach(name, AttachOptions{})
	r.wantWhole(name)
	r.wantKept(name)
	r.wantDetached(name)
}
