package test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/docs/schemas"
	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// ioctl makes a call on the volume's root.
func (v *volume) ioctl(request uintptr, argument unsafe.Pointer) error {
	v.t.Helper()
	file, err := os.Open(v.dir)
	if err != nil {
		v.t.Fatal(err)
	}
	defer file.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

// Of linux/fs.h and fs/ext4/ext4.h.
const (
	fifreeze   = 0xc0045877
	fithaw     = 0xc0045878
	fitrim     = 0xc0185879
	ext4Resize = 0x40086610

	ext4Checkpoint = 0x4004662b
)

// needsRecovery reports whether the disk's superblock asks for recovery: ext4's bit
// and our mark, and for JFS the mark alone.
func (v *volume) needsRecovery() bool {
	v.t.Helper()
	if v.system.jfs {
		return isMarked(v.t, v.disk)
	}
	const (
		offset = 1024 + 96 // s_feature_incompat
		stock  = 0x4
		marker = 0x40000000
	)
	first := takeImage(v.t, v.disk, 0, 4096).bytes
	features := binary.LittleEndian.Uint32(first[offset:])
	if has := features&marker != 0; has != (v.system.ours() && features&stock != 0) {
		v.t.Errorf("the features %#x have the marker: %t", features, has)
	}
	return features&stock != 0
}

// statfs returns the size of the file system and its free space, in blocks.
func (v *volume) statfs() (blocks, free uint64) {
	v.t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs(v.dir, &s); err != nil {
		v.t.Fatal(err)
	}
	return s.Blocks, s.Bfree
}

// A frozen volume accepts no change, is clean on the disk, and continues
// afterwards.
func freezeUnderLoad(t *testing.T, s system) {
	v := s.make(t, plan{})
	end := background(t, v.dir)
	for range scaled(3, 20) {
		time.Sleep(150 * time.Millisecond)
		if err := v.ioctl(fifreeze, nil); err != nil {
			t.Fatal(err)
		}
		// A process that changes something waits.
		var through atomic.Bool
		written := make(chan error, 1)
		go func() {
			err := os.WriteFile(filepath.Join(v.dir, "after"), []byte("thaw"), 0o644)
			through.Store(true)
			written <- err
		}()
		time.Sleep(50 * time.Millisecond)
		if through.Load() {
			t.Error("a frozen volume was written to")
		}
		if v.needsRecovery() {
			t.Error("the frozen disk is not clean")
		}
		if err := v.ioctl(fithaw, nil); err != nil {
			t.Fatal(err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
		if !v.needsRecovery() {
			t.Error("the disk says that it is clean after the thaw")
		}
	}
	end()
	v.end(nil)
}

// Read-only and writable in turn, again and again, beside readers; nothing can be
// written while it is read-only.
func remount(t *testing.T, s system) {
	v := s.make(t, plan{})
	for n := range scaled(3, 10) {
		stormed(t, v.dir, 3, 60)
		before := v.take()
		if err := unix.Mount("", v.dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, v.data()); err != nil {
			t.Fatalf("remount read-only: %v", err)
		}
		if err := os.WriteFile(filepath.Join(v.dir, "new"), nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("a write to a volume that is read-only: %v", err)
		}
		v.fsck()
		if err := unix.Mount("", v.dir, "", unix.MS_REMOUNT, v.data()); err != nil {
			t.Fatalf("remount writable, time %d: %v", n, err)
		}
		after := v.take()
		if len(before) != len(after) {
			t.Errorf("%d names before, %d after", len(before), len(after))
		}
	}
	v.end(nil)
}

// Several writers fill the disk, again and again. Deleting files frees their space,
// and all of it.
func noSpace(t *testing.T, s system) {
	const blocks = 4096
	v := s.make(t, plan{blocks: blocks, features: []string{"-N", "512", "-m", "0"}, journalMB: 4})
	_, empty := v.statfs()
	for n := range scaled(2, 6) {
		stormed(t, v.dir, 1, 20)
		var full atomic.Int32
		done := make(chan error, 3)
		for writer := range 3 {
			go func() { done <- fill(filepath.Join(v.dir, fmt.Sprintf("w%d", writer)), &full) }()
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if full.Load() == 0 {
			t.Error("nobody found the disk full")
		}
		// ext4 reserves a fiftieth of all blocks, those of its own structures included
		// (ext4_calculate_resv_clusters, fs/ext4/super.c, 6.1).
		if _, free := v.statfs(); free > blocks/50+64 {
			t.Errorf("%d blocks are free on a full disk", free)
		}
		end := background(t, v.dir, unix.ENOSPC)
		time.Sleep(300 * time.Millisecond)
		end()
		if n == 0 {
			before := v.take()
			v.unmount()
			v.fsck()
			v.sameInStock(before, nil)
			v.mount()
		}
		for _, name := range []string{"w0", "w1", "w2", "storm"} {
			if err := os.RemoveAll(filepath.Join(v.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		// The space of freed blocks can be used after the commit.
		if err := atomicfile.SyncFileSystem(v.dir); err != nil {
			t.Fatal(err)
		}
		if _, free := v.statfs(); free+8 < empty {
			t.Errorf("%d blocks are free after all was removed, not %d", free, empty)
		}
	}
	v.end(nil)
}

// fill makes files until the disk is full.
func fill(dir string, full *atomic.Int32) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		if errors.Is(err, unix.ENOSPC) {
			full.Add(1)
			return nil
		}
		return err
	}
	b := make([]byte, 256<<10)
	for i := range b {
		b[i] = byte(i >> 5)
	}
	for n := range 500 {
		file, err := os.Create(filepath.Join(dir, fmt.Sprintf("file%d", n)))
		if err == nil {
			_, err = file.Write(b)
			if err == nil && n%8 == 0 {
				err = file.Sync()
			}
			if closed := file.Close(); err == nil {
				err = closed
			}
		}
		if errors.Is(err, unix.ENOSPC) {
			full.Add(1)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("no end of room in %s", dir)
}

// The file system grows while it is used: by nvj, because resize2fs does not open a
// disk that ext4nvj uses, and stock ext4 by the same call of the kernel. As on a
// disk of some GiB, 596 blocks are reserved for descriptors of groups, and one
// handle asks for all of them; that is nearly a quarter of stock ext4's own
// journal.
func grow(t *testing.T, s system) {
	v := s.make(t, plan{blocks: 8192, journalMB: 10, features: []string{"-E", "resize=1250000000,lazy_itable_init=0,lazy_journal_init=0,nodiscard"}})
	end := background(t, v.dir)
	before := uint64(8192)
	for _, want := range []uint64{12000, 40000, diskBytes / 4096} {
		time.Sleep(100 * time.Millisecond)
		free, _ := v.statfs()
		if s.ours() {
			v.growByCommand(before, want)
		} else if err := v.ioctl(ext4Resize, unsafe.Pointer(&want)); err != nil {
			t.Fatalf("grow to %d blocks: %v", want, err)
		}
		if after, _ := v.statfs(); after <= free {
			t.Errorf("%d blocks before, %d after growing to %d", free, after, want)
		}
		before = want
	}
	if s.ours() {
		v.refusesToResize()
	}
	end()
	stormed(t, v.dir, 3, 100)
	v.end(nil)
}

// growByCommand grows it by nvj resize, from and to that many blocks.
func (v *volume) growByCommand(from, to uint64) {
	v.t.Helper()
	args := []string{"resize", v.dir, "--json"}
	if to*4096 < diskBytes {
		args = append(args, "--size", fmt.Sprint(to*4096))
	}
	said := must(v.t, "nvj", args...)
	if err := schemas.Validate("nvj", "resize", []byte(said)); err != nil {
		v.t.Errorf("nvj resize prints what its schema does not describe: %v\n%s", err, said)
	}
	var got struct {
		Device string
		Before uint64 `json:"before_bytes"`
		After  uint64 `json:"after_bytes"`
		Grown  bool
	}
	if err := json.Unmarshal([]byte(said), &got); err != nil {
		v.t.Fatalf("%v: %s", err, said)
	}
	if got.Device != v.disk || got.Before != from*4096 || got.After != to*4096 || !got.Grown {
		v.t.Errorf("it was to grow from %d to %d blocks: %s", from, to, said)
	}
}

// refusesToResize checks that nvj resize refuses what it must not do, with the
// reason. The file system already has all of its device.
func (v *volume) refusesToResize() {
	v.t.Helper()
	within := filepath.Join(v.dir, "within")
	if err := os.Mkdir(within, 0o755); err != nil {
		v.t.Fatal(err)
	}
	// Another user than root may still read the state there.
	if err := os.Chmod(v.dir, 0o755); err != nil {
		v.t.Fatal(err)
	}
	for _, c := range []struct {
		code    int
		says    string
		command []string
	}{
		{0, "already", []string{"nvj", "resize", v.dir}},
		{1, "can only grow", []string{"nvj", "resize", v.dir, "--size", "64M"}},
		{1, v.disk + " has", []string{"nvj", "resize", v.dir, "--size", size(2 * diskBytes)}},
		{2, "not a mount point", []string{"nvj", "resize", within}},
		{2, "Permission denied", []string{"setpriv", "--reuid=65534", "--clear-groups", "nvj", "resize", v.dir}},
	} {
		out, err := run(c.command[0], c.command[1:]...)
		code := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			v.t.Fatal(err)
		}
		if code != c.code || !strings.Contains(out, c.says) {
			v.t.Errorf("%s: exit code %d, wanted %d and %q: %s", strings.Join(c.command, " "), code, c.code, c.says, out)
		}
	}
}

// Freed blocks are discarded: when they are freed, and all at once by fstrim.
func discard(t *testing.T, s system) {
	v := s.make(t, plan{options: []string{"discard"}})
	before := discarded(t, v.disk)
	path := filepath.Join(v.dir, "file")
	if err := os.WriteFile(path, make([]byte, 8<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var after uint64
	if !await(func() bool {
		if err := atomicfile.SyncFileSystem(v.dir); err != nil {
			t.Fatal(err)
		}
		after = discarded(t, v.disk)
		return after-before >= 8<<20/512
	}) {
		t.Errorf("%d sectors were discarded when a file of 8 MiB was removed", after-before)
	}
	v.stormed(3, 100)
	trim := struct{ start, length, minimum uint64 }{0, 1 << 60, 0}
	if err := v.ioctl(fitrim, unsafe.Pointer(&trim)); err != nil {
		t.Fatal(err)
	}
	if trim.length < 64<<20 {
		t.Errorf("fstrim discarded %d bytes of a disk that is nearly empty", trim.length)
	}
	v.end(nil)
}

// discarded is the number of discarded sectors of a disk (its stat, field 14).
func discarded(t *testing.T, disk string) uint64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(disk), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	var f [14]uint64
	if _, err := fmt.Sscan(string(text), &f[0], &f[1], &f[2], &f[3], &f[4], &f[5], &f[6], &f[7], &f[8], &f[9], &f[10], &f[11], &f[12], &f[13]); err != nil {
		t.Fatal(err)
	}
	return f[13]
}

// Two file systems, whose journals are slices of one persistent memory, under load
// at the same time. A slice that overlaps another one is refused.
func twoOnOneMemory(t *testing.T, s system) {
	slice := s.smallestJournal()
	first := s.volume(t, plan{size: slice})
	second := s.volume(t, plan{disk: vmtest.Device(t, "disk1"), offset: slice, size: slice})
	first.mkfs()
	second.mkfs()
	first.mount()
	second.mount()
	ends := []func(){}
	for _, v := range []*volume{first, second} {
		end := background(t, v.dir)
		ends = append(ends, func() { end() })
	}
	time.Sleep(500 * time.Millisecond)
	for _, end := range ends {
		end()
	}
	before := first.take()
	first.unmount()
	// The first one's memory is free again; the second one's is not.
	for _, offset := range []int{4096, slice, slice + 4096} {
		wrong := *first
		wrong.offset, wrong.size = offset, slice
		seen := logMark(t)
		if err := wrong.tryMount(); err == nil {
			wrong.unmount()
			t.Errorf("a journal at %d was taken, beside one at %d", offset, slice)
		}
		if said := logSince(t, seen); said == "" {
			t.Error("nothing was said")
		}
	}
	first.fsck()
	first.sameInStock(before, nil)
	first.mount()
	first.end(nil)
	second.end(nil)
}
