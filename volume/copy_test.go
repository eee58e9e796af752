package volume

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/needs"
)

// newReflinkRig makes a rig whose pool is on a file system with reflinks, on a
// loop device: "xfs" or "btrfs".
func newReflinkRig(t *testing.T, kind string) *rig {
	t.Helper()
	r := newHome(t)
	const sizeBytes = 768 << 20
	file := filepath.Join(r.home, "disk-"+kind)
	if err := makeSparse(file, sizeBytes); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(file, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d := poolDisk{loop, filepath.Join(r.home, "on-"+kind)}
	mounted := false
	t.Cleanup(func() {
		if mounted {
			r.endPoolOn(d)
		}
		if err := loop.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	})
	arguments := []string{"-q", "-f", "-m", "reflink=1"}
	if kind == "btrfs" {
		arguments = []string{"-q", "-f"}
	}
	if output, err := exec.Command(needs.Tool(t, "mkfs."+kind), append(arguments, loop.Node())...).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.%s: %v: %s", kind, err, output)
	}
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err = unix.Mount(loop.Node(), d.dir, kind, 0, "")
	needs.That(t, !errors.Is(err, unix.ENODEV), "the file system "+kind)
	if err != nil {
		t.Fatal(err)
	}
	mounted = true
	r.before = r.host()
	r.open(filepath.Join(d.dir, "pool"))
	return r
}

func haveBtrfs() bool {
	_, err := exec.LookPath("mkfs.btrfs")
	text, readErr := os.ReadFile("/proc/filesystems")
	return err == nil && readErr == nil && strings.Contains(string(text), "btrfs")
}

// onEachPool runs a test on a pool that has to copy, and on those that have
// reflinks.
func onEachPool(t *testing.T, test func(t *testing.T, r *rig, how Method)) {
	t.Run("ext4", func(t *testing.T) { test(t, newRig(t), Copied) })
	t.Run("xfs", func(t *testing.T) { test(t, newReflinkRig(t, "xfs"), Reflink) })
	if haveBtrfs() {
		t.Run("btrfs", func(t *testing.T) { test(t, newReflinkRig(t, "btrfs"), Reflink) })
	}
}

// sparseImage makes an image with random data at some places.
func sparseImage(t *testing.T, dir, name string, sizeBytes int64, seed uint64) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := makeSparse(path, uint64(sizeBytes)); err != nil {
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
		piece := make([]byte, (1+random.IntN(100))*sizeUnitBytes)
		at := random.Int64N(sizeBytes/sizeUnitBytes) * sizeUnitBytes
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

func wantEqualFiles(t *testing.T, got, want string) {
	t.Helper()
	a, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("%s differs from %s", got, want)
	}
}

func allocatedBytes(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func TestACopyHoldsTheSameAndZerosTakeNoBlocks(t *testing.T) {
	dir := t.TempDir()
	const size = 21<<20 + 3*sizeUnitBytes // the last chunk is not whole
	source := sparseImage(t, dir, "source", size, 1)
	target := filepath.Join(dir, "target")
	if err := makeSparse(target, size); err != nil {
		t.Fatal(err)
	}
	var last, total uint64
	before, err := copyImage(t.Context(), source, target, size, nil, func(done, of uint64) {
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
	wantEqualFiles(t, target, source)
	if got, most := allocatedBytes(t, target), allocatedBytes(t, source)+40*holeBytes; got > most || got == 0 {
		t.Errorf("the copy takes %d bytes, want at most %d", got, most)
	}
	// Only what differs is written by the next copy, and holes are made.
	for seed := range uint64(5) {
		change(t, source, size, 100+seed)
		now, err := copyImage(t.Context(), source, target, size, before, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantEqualFiles(t, target, source)
		if now.changedBytes == 0 || now.changedBytes > size {
			t.Errorf("%d bytes changed", now.changedBytes)
		}
		before = now
	}
	now, err := copyImage(t.Context(), source, target, size, before, nil)
	if err != nil || now.changedBytes != 0 {
		t.Errorf("nothing has changed, and %d bytes were copied, %v", now.changedBytes, err)
	}
	sums, err := sumImage(t.Context(), target, size, nil)
	if err != nil || imageSum(size, sums) != imageSum(size, now.sums) {
		t.Errorf("the copy's sum is another (%v)", err)
	}
	if err := os.Truncate(source, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(source, size); err != nil {
		t.Fatal(err)
	}
	if _, err := copyImage(t.Context(), source, target, size, now, nil); err != nil {
		t.Fatal(err)
	}
	if got := allocatedBytes(t, target); got > 1<<20 {
		t.Errorf("the copy of nothing takes %d bytes", got)
	}
}

func TestACopyStopsWithItsContextAndAtTheFirstError(t *testing.T) {
	dir := t.TempDir()
	source, target := sparseImage(t, dir, "source", 16<<20, 1), filepath.Join(dir, "target")
	if err := makeSparse(target, 16<<20); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := copyImage(ctx, source, target, 16<<20, nil, func(uint64, uint64) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := copyImage(t.Context(), source, target, 17<<20, nil, nil); !errors.Is(err, ErrCorrupt) {
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
	r := newRig(t)
	path := sparseImage(t, r.home, "image", 16<<20, 1)
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
	piece := bytes.Repeat([]byte{0xda}, chunkBytes)
	for i := range 16 {
		if _, err := device.WriteAt(piece, int64(i)*chunkBytes); err != nil {
			t.Fatal(err)
		}
	}
	if err := device.Sync(); err != nil {
		t.Fatal(err)
	}
	sums, err := sumImage(t.Context(), path, 16<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range sums {
		if got != sumOf(piece) {
			t.Errorf("chunk %d is not what the loop device wrote", i)
		}
	}
}

// sharesBlocks says whether a file has an extent that another file has, too.
func sharesBlocks(t *testing.T, path string) bool {
	t.Helper()
	const sharedFlag = 0x2000
	return slices.ContainsFunc(extentsOf(t, path), func(e extent) bool { return e.flags&sharedFlag != 0 })
}

// piecesOf counts the places on the disk at which a file lies.
func piecesOf(t *testing.T, path string) int {
	t.Helper()
	pieces, end := 0, uint64(0)
	for _, e := range extentsOf(t, path) {
		if e.at != end {
			pieces++
		}
		end = e.at + e.bytes
	}
	return pieces
}

// extent is where a piece of a file lies on the disk, in bytes, with FIEMAP's
// flags.
type extent struct {
	at, bytes uint64
	flags     uint32
}

// extentsOf asks where a file lies (FIEMAP, include/uapi/linux/fiemap.h).
func extentsOf(t *testing.T, path string) []extent {
	t.Helper()
	const (
		fiemap      = 0xc020660b // _IOWR('f', 11, struct fiemap)
		syncFlag    = 1
		most        = 1000
		headBytes   = 32
		extentBytes = 56
	)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	argument := make([]byte, headBytes+most*extentBytes)
	binary.NativeEndian.PutUint64(argument[8:], 1<<62) // length
	binary.NativeEndian.PutUint32(argument[16:], syncFlag)
	binary.NativeEndian.PutUint32(argument[24:], most)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), fiemap, uintptr(unsafe.Pointer(&argument[0]))); errno != 0 {
		t.Fatal(errno)
	}
	mapped := int(binary.NativeEndian.Uint32(argument[20:]))
	if mapped == 0 || mapped == most {
		t.Fatalf("%s has %d extents", path, mapped)
	}
	extents := make([]extent, mapped)
	for i := range extents {
		one := argument[headBytes+i*extentBytes:]
		extents[i] = extent{at: binary.NativeEndian.Uint64(one[8:]), bytes: binary.NativeEndian.Uint64(one[16:]), flags: binary.NativeEndian.Uint32(one[40:])}
	}
	return extents
}
