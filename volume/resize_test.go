package volume

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/vm/vmtest"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
)

// wantSize fails the test if record, image, file system and loop device do not have
// that size, or the file system is smaller by a block group or more.
func (r *rig) wantSize(name string, bytes uint64) {
	r.t.Helper()
	status := r.inspect(name)
	info, err := os.Stat(r.pool.files.Image(name))
	if err != nil {
		r.t.Fatal(err)
	}
	if status.SizeBytes != bytes || status.Resize != 0 || uint64(info.Size()) != bytes {
		r.t.Errorf("record %d bytes, resize to %d, image %d; want %d", status.SizeBytes, status.Resize, info.Size(), bytes)
	}
	device := r.pool.files.Image(name)
	if status.Attachment != nil {
		device = status.LoopDevice
		disk, err := blockdev.Lookup(device)
		if err != nil {
			r.t.Fatal(err)
		}
		if capacity, err := disk.SizeBytes(); err != nil || capacity != bytes {
			r.t.Errorf("the loop device has %d bytes, %v; want %d", capacity, err, bytes)
		}
	}
	if got, err := fileSystemBytes(device); err != nil || got != bytes {
		r.t.Errorf("the file system has %d bytes, %v; want %d", got, err, bytes)
	}
	if _, err := os.Stat(r.pool.files.UndoFile(name)); !errors.Is(err, fs.ErrNotExist) {
		r.t.Errorf("the undo file is there still (%v)", err)
	}
}

// inGrowingGuest runs a test in a guest, with files on a disk of the guest: hosts
// do not always allow us to grow a mounted ext4.
func inGrowingGuest(t *testing.T, test func(t *testing.T)) {
	vmtest.InGuest(t, vmtest.Config{
		Disks: []string{"1G"}, Modules: "ext4,loop", Give: []string{"mke2fs", "e2fsck", "resize2fs", "tune2fs"}, OneKernel: true,
	}, func(t *testing.T) {
		makeFilesOnDisk(t, vmtest.Device(t, "disk0"))
		test(t)
	})
}

func TestGuestVolumeGrowsUnderLoad(t *testing.T) {
	inGrowingGuest(t, func(t *testing.T) {
		for _, provision := range []Provision{Thin, Full} {
			growUnderLoad(t, newRig(t), provision)
		}
	})
}

func growUnderLoad(t *testing.T, r *rig, provision Provision) {
	name := r.name("db")
	r.create(name, CreateOptions{SizeBytes: 32 << 20, Provision: provision})
	r.attach(name, AttachOptions{Placement: PlaceNone})
	writer := startRecords(t, r.target(name))
	size := uint64(32 << 20)
	for _, more := range []uint64{4096, 60<<20 - 4096, 160 << 20} {
		writer.await(5)
		size += more
		var told uint64
		record, err := r.pool.Resize(t.Context(), name, size, ResizeOptions{Progress: func(done, of uint64) {
			if of != more {
				t.Errorf("%d of %d bytes, want of %d", done, of, more)
			}
			told = done
		}})
		if err != nil {
			t.Fatal(err)
		}
		r.wantSize(name, size)
		if record.SizeBytes != size || told != map[Provision]uint64{Thin: 0, Full: more}[provision] {
			t.Errorf("%+v, progress %d", record, told)
		}
	}
	writer.await(5)
	status := r.inspect(name)
	if status.UsedBytes+status.FreeBytes < size*8/10 {
		t.Errorf("%+v", status)
	}
	if full := status.AllocatedBytes >= size; full != (provision == Full) {
		t.Errorf("%d bytes are allocated of %d", status.AllocatedBytes, size)
	}
	writer.end()
	r.detach(name)
	r.wantWhole(name)
	r.attach(name, AttachOptions{Placement: PlaceNone})
	wantRecords(t, r.target(name), writer.synced.Load())
	r.detach(name)
}

// fill writes files and returns their sum.
func fill(t *testing.T, dir string, bytes int) [sha256.Size]byte {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	piece := make([]byte, 1<<20)
	for n := 0; n*len(piece) < bytes; n++ {
		for i := range piece {
			piece[i] = byte(random.Uint32())
		}
		path := filepath.Join(dir, "data"+string(rune('a'+n%26))+strings.Repeat("x", n/26))
		if err := os.WriteFile(path, piece, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return sumOfFiles(t, dir)
}

func sumOfFiles(t *testing.T, dir string) [sha256.Size]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		h.Write([]byte(entry.Name()))
		h.Write(sum[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// newFilled makes a detached volume whose data are at its end, so that shrinking
// moves them.
func (r *rig) newFilled(name string, sizeBytes uint64, o CreateOptions) [sha256.Size]byte {
	r.t.Helper()
	t := r.t.(*testing.T)
	o.SizeBytes = sizeBytes
	r.create(name, o)
	r.attach(name, AttachOptions{Placement: PlaceNone})
	dir := r.target(name)
	block := filepath.Join(dir, "block")
	file, err := os.Create(block)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(int(file.Fd()), 0, 0, int64(sizeBytes/2)); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	fill(t, dir, int(sizeBytes/4))
	if err := os.Remove(block); err != nil {
		t.Fatal(err)
	}
	sum := sumOfFiles(t, dir)
	r.detach(name)
	return sum
}

func (r *rig) wantFiles(name string, want [sha256.Size]byte) {
	r.t.Helper()
	r.attach(name, AttachOptions{Placement: PlaceNone})
	if sumOfFiles(r.t.(*testing.T), r.target(name)) != want {
		r.t.Error("the files are not as they were")
	}
	r.detach(name)
}

func TestADetachedVolumeGrowsAndShrinks(t *testing.T) {
	for _, provision := range []Provision{Thin, Full} {
		t.Run(string(provision), func(t *testing.T) {
			r := newRig(t)
			name := r.name("db")
			want := r.newFilled(name, 128<<20, CreateOptions{Provision: provision})
			for _, size := range []uint64{96 << 20, 300 << 20, 90 << 20, 90 << 20, 128 << 20} {
				record, err := r.pool.Resize(t.Context(), name, size, ResizeOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if record.SizeBytes != size {
					t.Errorf("%+v", record)
				}
				r.wantSize(name, size)
				status := r.wantWhole(name)
				if full := status.AllocatedBytes >= size; full != (provision == Full) {
					t.Errorf("%d bytes are allocated of %d", status.AllocatedBytes, size)
				}
			}
			r.wantFiles(name, want)
			r.wantDetached(name)
		})
	}
}

func TestAResizeThatCannotBeChangesNothing(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	want := r.newFilled(name, 64<<20, CreateOptions{})
	sums, err := imagefile.Sums(t.Context(), r.pool.files.Image(name), 64<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	r.pool.engine.Stop = func(step string) {
		if step != "checked" { // which corrects the file system, and resizes nothing
			steps++
		}
	}
	for _, size := range []uint64{0, 1, MinSizeBytes - 4096, 32<<20 + 1, MaxSizeBytes + 4096, 1 << 63, MinSizeBytes} {
		_, err := r.pool.Resize(t.Context(), name, size, ResizeOptions{})
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%d: %v", size, err)
		}
		if size == MinSizeBytes && !strings.Contains(err.Error(), "its data need at least") {
			t.Errorf("%v", err)
		}
	}
	if steps != 0 {
		t.Errorf("%d steps were done", steps)
	}
	if after, err := imagefile.Sums(t.Context(), r.pool.files.Image(name), 64<<20, nil); err != nil || len(after) != len(sums) {
		t.Error(err)
	}
	if err := r.pool.SetQuota(t.Context(), 65<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.Resize(t.Context(), name, 66<<20, ResizeOptions{}); !errors.Is(err, ErrNoSpace) {
		t.Errorf("over the quota: %v", err)
	}
	r.wantSize(name, 64<<20)
	if _, err := r.pool.Resize(t.Context(), name, 65<<20, ResizeOptions{}); err != nil {
		t.Errorf("within the quota: %v", err)
	}
	r.attach(name, AttachOptions{Placement: PlaceNone})
	if _, err := r.pool.Resize(t.Context(), name, 48<<20, ResizeOptions{}); !errors.Is(err, ErrBusy) {
		t.Errorf("attached: %v", err)
	}
	r.detach(name)
	r.attach(name, AttachOptions{Placement: PlaceNone, ReadOnly: true})
	if _, err := r.pool.Resize(t.Context(), name, 65<<20+4096, ResizeOptions{}); !errors.Is(err, ErrNoSpace) && !errors.Is(err, ErrBusy) {
		t.Errorf("read-only: %v", err)
	}
	r.detach(name)
	r.wantSize(name, 65<<20)
	r.wantFiles(name, want)
	if _, err := r.pool.Resize(t.Context(), r.name("none"), 64<<20, ResizeOptions{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func TestAGrowingWithoutRoomIsRolledBack(t *testing.T) { growWithoutRoom(t, false) }

func TestGuestGrowingWithoutRoomIsRolledBack(t *testing.T) {
	inGrowingGuest(t, func(t *testing.T) { growWithoutRoom(t, true) })
}

func growWithoutRoom(t *testing.T, attached bool) {
	r := newHome(t)
	disk := r.newDisk(192<<20, 512, "")
	r.open(filepath.Join(disk.dir, "pool"))
	name := r.name("db")
	r.create(name, CreateOptions{SizeBytes: 32 << 20, Provision: Full})
	if attached {
		r.attach(name, AttachOptions{Placement: PlaceNone})
		defer r.detach(name)
	}
	if _, err := r.pool.Resize(t.Context(), name, 1<<30, ResizeOptions{}); !errors.Is(err, ErrNoSpace) {
		t.Errorf("%v", err)
	}
	r.wantSize(name, 32<<20)
	// And the context ends while it is written out.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := r.pool.Resize(ctx, name, 64<<20, ResizeOptions{Progress: func(uint64, uint64) { cancel() }}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	r.wantSize(name, 32<<20)
	if attached {
		wantWritable(t, r.target(name))
	} else {
		r.wantWhole(name)
	}
}

// TestAnInterruptedOfflineResizeIsFinishedOrRolledBack kills resize2fs and its
// caller at moments during its work.
func TestAnInterruptedOfflineResizeIsFinishedOrRolledBack(t *testing.T) {
	const size, shorter, longer = 96 << 20, 72 << 20, 256 << 20
	for _, to := range []uint64{shorter, longer} {
		r := newRig(t)
		name := r.name("db")
		want := r.newFilled(name, size, CreateOptions{})
		original := filepath.Join(r.home, "original")
		if err := imagefile.MakeSparse(original, size); err != nil {
			t.Fatal(err)
		}
		if _, err := imagefile.Copy(t.Context(), r.pool.files.Image(name), original, size, nil, nil); err != nil {
			t.Fatal(err)
		}
		whole := time.Duration(0)
		finished, rolledBack, undone := 0, 0, 0
		r.pool.engine.Stop = func(step string) {
			if step == "undone" {
				undone++
			}
		}
		const rounds = 10
		for round := range rounds {
			restore(t, original, r.pool.files.Image(name), size)
			v, err := r.pool.hold(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			v.record.SizeBytes, v.record.Resize = size, to
			if err := v.write(); err != nil {
				t.Fatal(err)
			}
			if to > size {
				if err := os.Truncate(r.pool.files.Image(name), int64(to)); err != nil {
					t.Fatal(err)
				}
			}
			if _, _, err := v.offline().Check(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			undo := r.pool.files.UndoFile(name)
			if err := makeUndoFile(undo); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			command := exec.Command("resize2fs", "-z", undo, r.pool.files.Image(name), fmt.Sprintf("%dK", to>>10))
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			if round > 0 {
				time.Sleep(whole * time.Duration(round) / rounds)
				_ = command.Process.Kill()
			}
			_ = command.Wait()
			if round == 0 {
				whole = time.Since(began)
			}
			v.release()
			what := r.repair().Volumes[name]
			record := r.inspect(name).Record
			switch {
			case record.SizeBytes == to:
				finished++
			case record.SizeBytes == size && to < size:
				rolledBack++
			default:
				t.Errorf("it has %d bytes: %s", record.SizeBytes, what)
			}
			r.wantSize(name, record.SizeBytes)
			r.wantWhole(name)
			r.wantFiles(name, want)
		}
		t.Logf("to %d: %d finished, %d rolled back, %d undone", to, finished, rolledBack, undone)
		if finished == 0 || undone == 0 {
			t.Errorf("to %d: finished %d, undone %d: want some of each", to, finished, undone)
		}
	}
}

// restore restores the content of an image.
func restore(t testing.TB, original, image string, sizeBytes uint64) {
	t.Helper()
	if err := os.Remove(image); err != nil {
		t.Fatal(err)
	}
	if err := imagefile.MakeSparse(image, sizeBytes); err != nil {
		t.Fatal(err)
	}
	if _, err := imagefile.Copy(t.Context(), original, image, sizeBytes, nil, nil); err != nil {
		t.Fatal(err)
	}
}

func TestAResizeInterruptedAtAnyStepIsEndedByTheNextOperation(t *testing.T) {
	for _, step := range []string{"resizing", "resized", "exchanged"} {
		interruptResize(t, newRig(t), 48<<20, step, false)
	}
	for _, step := range []string{"resizing", "lengthened", "resized"} {
		interruptResize(t, newRig(t), 96<<20, step, false)
	}
}

func TestGuestGrowingInterruptedAtAnyStepIsEndedByTheNextOperation(t *testing.T) {
	inGrowingGuest(t, func(t *testing.T) {
		for _, step := range []string{"resizing", "lengthened", "capacity"} {
			interruptResize(t, newRig(t), 96<<20, step, true)
		}
	})
}

// interruptResize stops the operation at a step, like a kill without killing: the
// lock is released, and record and image stay as they are.
func interruptResize(t *testing.T, r *rig, to uint64, step string, attached bool) {
	type interrupted struct{ step string }
	name := r.name("db")
	want := r.newFilled(name, 64<<20, CreateOptions{Provision: Full})
	if attached {
		r.attach(name, AttachOptions{Placement: PlaceNone})
	}
	func() {
		defer func() {
			if got := recover(); got != (interrupted{step}) {
				t.Errorf("step %s was not reached: %v", step, got)
			}
			r.pool.engine.Stop = func(string) {}
		}()
		r.pool.engine.Stop = func(at string) {
			if at == step {
				panic(interrupted{step})
			}
		}
		_, err := r.pool.Resize(t.Context(), name, to, ResizeOptions{})
		t.Error(err)
	}()
	if status := r.inspect(name); status.Resize != to {
		t.Errorf("%s: %+v", step, status)
	}
	if !attached {
		if _, err := r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target(name), Placement: PlaceNone}); err == nil {
			t.Errorf("%s: attached in the middle of a resize", step)
		}
	}
	if _, err := r.pool.Snapshot(t.Context(), name, "s", SnapshotOptions{MaxFreeze: time.Minute}); err != nil {
		t.Errorf("%s: %v", step, err)
	}
	got := r.inspect(name).SizeBytes
	if got != to && (got != 64<<20 || to > 64<<20) {
		t.Errorf("%s: %d bytes", step, got)
	}
	if got != to && step == "exchanged" {
		t.Errorf("%s: it was rolled back", step)
	}
	r.wantSize(name, got)
	r.wantWhole(name)
	if attached {
		r.detach(name)
	}
	r.wantFiles(name, want)
}

func TestAVolumeShrinksInPlaceWhereACopyHasNoRoom(t *testing.T) {
	r := newHome(t)
	disk := r.newDisk(112<<20, 512, "")
	r.open(filepath.Join(disk.dir, "pool"))
	name := r.name("db")
	want := r.newFilled(name, 56<<20, CreateOptions{Provision: Full})
	copied := false
	r.pool.engine.Stop = func(step string) { copied = copied || step == "exchanged" }
	if _, err := r.pool.Resize(t.Context(), name, 40<<20, ResizeOptions{}); err != nil {
		t.Fatal(err)
	}
	if copied {
		t.Error("it was copied, and there was no room for the other volumes")
	}
	r.wantSize(name, 40<<20)
	r.wantWhole(name)
	r.wantFiles(name, want)
	r.wantDetached(name)
}

// makeFilesOnDisk makes an ext4 on a guest's disk, for the test's files.
func makeFilesOnDisk(t *testing.T, device string) {
	t.Helper()
	if err := ext4.Make(t.Context(), device, ext4.MakeOptions{}); err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	if err := ext4.Mount(device, directory, ext4.MountOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ext4.Unmount(context.Background(), directory); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("TMPDIR", directory)
}
