package imagefile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/filetest"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
)

// sparseImage makes an image with random data at some places.
func sparseImage(t *testing.T, dir, name string, sizeBytes int64, seed uint64) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := MakeSparse(path, uint64(sizeBytes)); err != nil {
		t.Fatal(err)
	}
	change(t, path, sizeBytes, seed)
	return path
}

// change writes random data to random places, zeros to others, and holes.
func change(t *testing.T, path string, sizeBytes int64, seed uint64) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 40 {
		piece := make([]byte, (1+random.IntN(100))*chunk.UnitBytes)
		at := random.Int64N(sizeBytes/chunk.UnitBytes) * chunk.UnitBytes
		piece = piece[:min(int64(len(piece)), sizeBytes-at)]
		switch i % 4 {
		case 0: // zeros that have blocks
		case 1:
			if err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, int64(len(piece))); err != nil {
				t.Fatal(err)
			}
			continue
		default:
			for j := range piece {
				piece[j] = byte(random.Uint32())
			}
		}
		if _, err := file.WriteAt(piece, at); err != nil {
			t.Fatal(err)
		}
	}
}

func TestACopyHoldsTheSameAndZerosTakeNoBlocks(t *testing.T) {
	dir := t.TempDir()
	const size = 21<<20 + 3*chunk.UnitBytes // the last chunk is not whole
	source := sparseImage(t, dir, "source", size, 1)
	target := filepath.Join(dir, "target")
	if err := MakeSparse(target, size); err != nil {
		t.Fatal(err)
	}
	var last, total uint64
	before, err := Copy(t.Context(), source, target, size, nil, func(done, of uint64) {
		if done < last {
			t.Errorf("the progress went back from %d to %d", last, done)
		}
		last, total = done, of
	})
	if err != nil {
		t.Fatal(err)
	}
	if last != size || total != size {
		t.Errorf("the progress ended at %d of %d, want %d", last, total, uint64(size))
	}
	filetest.WantEqual(t, target, source)
	if got, most := filetest.AllocatedBytes(t, target), filetest.AllocatedBytes(t, source)+40*holeBytes; got > most || got == 0 {
		t.Errorf("the copy takes %d bytes, want at most %d", got, most)
	}
	// Only what differs is written by the next copy, and holes are made.
	for seed := range uint64(5) {
		change(t, source, size, 100+seed)
		now, err := Copy(t.Context(), source, target, size, before, nil)
		if err != nil {
			t.Fatal(err)
		}
		filetest.WantEqual(t, target, source)
		if now.ChangedBytes == 0 || now.ChangedBytes > size {
			t.Errorf("%d bytes changed", now.ChangedBytes)
		}
		before = now
	}
	now, err := Copy(t.Context(), source, target, size, before, nil)
	if err != nil || now.ChangedBytes != 0 {
		t.Errorf("nothing has changed, and %d bytes were copied, %v", now.ChangedBytes, err)
	}
	sums, err := Sums(t.Context(), target, size, nil)
	if err != nil || chunk.ImageSum(size, sums) != chunk.ImageSum(size, now.Sums) {
		t.Errorf("the copy's sum is another (%v)", err)
	}
	if err := os.Truncate(source, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(source, size); err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(t.Context(), source, target, size, now, nil); err != nil {
		t.Fatal(err)
	}
	if got := filetest.AllocatedBytes(t, target); got > 1<<20 {
		t.Errorf("the copy of nothing takes %d bytes", got)
	}
}

func TestACopyStopsWithItsContextAndAtTheFirstError(t *testing.T) {
	dir := t.TempDir()
	source, target := sparseImage(t, dir, "source", 16<<20, 1), filepath.Join(dir, "target")
	if err := MakeSparse(target, 16<<20); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Copy(ctx, source, target, 16<<20, nil, func(uint64, uint64) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := Copy(t.Context(), source, target, 17<<20, nil, nil); !errors.Is(err, cause.ErrCorrupt) {
		t.Errorf("an image that is too short gives %v", err)
	}
	err := eachChunk(t.Context(), source, 16<<20, nil, func(index int, _ []byte) error {
		if index == 3 {
			return fmt.Errorf("stopped at %d", index)
		}
		return nil
	})
	if err == nil || err.Error() != "stopped at 3" {
		t.Errorf("%v", err)
	}
}

func TestWhatALoopDeviceWroteIsSeen(t *testing.T) {
	needs.Root(t)
	path := sparseImage(t, t.TempDir(), "image", 16<<20, 1)
	// The page cache has all of it.
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(path, blockdev.AttachOptions{DirectIO: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := loop.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	device, err := os.OpenFile(loop.Node(), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	piece := bytes.Repeat([]byte{0xda}, chunk.Bytes)
	for i := range 16 {
		if _, err := device.WriteAt(piece, int64(i)*chunk.Bytes); err != nil {
			t.Fatal(err)
		}
	}
	if err := device.Sync(); err != nil {
		t.Fatal(err)
	}
	sums, err := Sums(t.Context(), path, 16<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range sums {
		if got != chunk.SumOf(piece) {
			t.Errorf("chunk %d is not what the loop device wrote", i)
		}
	}
}

// A new logical volume has whatever was on the disk before.
func TestACopyOverOldDataLeavesNothingOfIt(t *testing.T) {
	dir := t.TempDir()
	const size = 9<<20 + chunk.UnitBytes
	source, target := sparseImage(t, dir, "source", size, 1), filepath.Join(dir, "target")
	if err := os.WriteFile(target, bytes.Repeat([]byte{0xa5}, size), 0o600); err != nil {
		t.Fatal(err)
	}
	var last uint64
	if err := CopyOver(t.Context(), source, target, size, func(done, _ uint64) { last = done }); err != nil || last != size {
		t.Fatalf("%v after %d bytes", err, last)
	}
	filetest.WantEqual(t, target, source)
	if err := CopyOver(t.Context(), source, filepath.Join(dir, "none"), size, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a target that is not there: %v", err)
	}
}
