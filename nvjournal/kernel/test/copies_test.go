package test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/vm/vmtest"
)

// changed is a copy of an image with other bytes.
func (i *image) changed(t *testing.T, change func(b []byte)) *image {
	t.Helper()
	other := *i
	other.bytes = aligned(t, len(i.bytes))
	copy(other.bytes, i.bytes)
	change(other.bytes)
	return &other
}

// ofNoDisk makes the region one of any disk, like the journal of a program: both
// copies of the superblock, with their CRC.
func ofNoDisk(b []byte) {
	const crcAt, diskAt, superBytes = 12, 32, 128
	for _, super := range [][]byte{b[:superBytes], b[4096 : 4096+superBytes]} {
		clear(super[diskAt : diskAt+16])
		clear(super[crcAt : crcAt+4])
		crc := ^crc32.Update(0, crc32.MakeTable(crc32.Castagnoli), super)
		binary.LittleEndian.PutUint32(super[crcAt:], crc)
	}
}

// A mount of a disk that does not wait for a region's committed data does not
// format that region. No older copy of a region is accepted instead of the region.
func copies(t *testing.T, s system) {
	t.Run("not at home", func(t *testing.T) { notAtHome(t, s) })
	t.Run("older copy", func(t *testing.T) { olderCopy(t, s) })
}

// refusedMount mounts a volume; the mount must fail, write nothing, and report the
// reason.
func (v *volume) refusedMount(t *testing.T, is unclean, flags uintptr, said ...string) {
	t.Helper()
	is.restore(t)
	seen := logMark(t)
	if err := unix.Mount(v.disk, v.dir, v.fstype(), flags, v.data()); err == nil {
		_ = unix.Unmount(v.dir, 0)
		t.Fatal("it was mounted")
	}
	log := logSince(t, seen)
	for _, text := range said {
		if !strings.Contains(log, text) {
			t.Errorf("the kernel does not say %q:\n%s", text, log)
		}
	}
	is.untouched(t)
}

func notAtHome(t *testing.T, s system) {
	v, u, check := crashed(t, s, smallPlan(s))
	place := []string{v.pmem, "--offset", fmt.Sprint(v.offset)}
	must(t, "nvj", append(append([]string{"recover"}, place...), "--target", v.disk)...)
	// Like a clone of the disk that was made while it was frozen: it waits for no
	// region.
	unmarked := takeImage(t, v.disk, 0, v.blocks*4096)
	commands := []string{"not at home", "nvj recover " + v.pmem, "nvj format " + v.pmem, "--force"}

	t.Run("a clone of the disk", func(t *testing.T) {
		v.refusedMount(t, unclean{unmarked, u.region}, 0, commands...)
	})
	t.Run("read-only", func(t *testing.T) {
		v.refusedMount(t, unclean{unmarked, u.region}, unix.MS_RDONLY, commands...)
	})
	library := u.region.changed(t, ofNoDisk)
	t.Run("a region without a disk", func(t *testing.T) {
		v.refusedMount(t, unclean{unmarked, library}, 0, commands...)
	})
	t.Run("a region of another disk", func(t *testing.T) {
		other := s.volume(t, plan{disk: vmtest.Device(t, "disk1"), blocks: v.blocks, size: v.size, journalMB: 4})
		other.mkfs()
		other.refusedMount(t, unclean{takeImage(t, other.disk, 0, other.blocks*4096), library}, 0, commands...)
	})
	t.Run("a damaged region", func(t *testing.T) {
		u.region.restore(t)
		damaged := u.region.changed(t, func(b []byte) { flipCommitted(t, v, b, 5) })
		v.refusedMount(t, unclean{unmarked, damaged}, 0, "damaged", "nvj check", "nvj format")
	})
	t.Run("decided", func(t *testing.T) {
		unclean{unmarked, library}.restore(t)
		if out, err := run("nvj", append([]string{"format"}, place...)...); err == nil {
			t.Fatalf("formatted: %s", out)
		}
		must(t, "nvj", append(append([]string{"format"}, place...), "--size", fmt.Sprint(v.size), "--force")...)
		v.mount()
		check(v.dir)
		v.end(check)
		// A clean region of any disk is as good as an empty one.
		ofNone := takeImage(t, v.pmem, int64(v.offset), v.size).changed(t, ofNoDisk)
		ofNone.restore(t)
		v.mount()
		v.end(check)
	})
}

// tails returns the region's tail according to the mark on an unclean disk, 0 if
// there is no mark, and the tail itself.
func (v *volume) tails() (mark, tail uint64) {
	v.t.Helper()
	const blockAt = 1024 + 0x3f4
	const uuidAt, tailAt = 16, 32
	super := takeImage(v.t, v.disk, 0, 4096).bytes
	number := binary.LittleEndian.Uint64(super[blockAt:])
	if number == 0 || !v.needsRecovery() {
		v.t.Errorf("the disk does not say where its mark is (%d)", number)
	}
	block := takeImage(v.t, v.disk, int64(number)*4096, 4096).bytes
	if bytes.Equal(block[uuidAt:uuidAt+16], super[1024+0xd0:][:16]) {
		mark = binary.LittleEndian.Uint64(block[tailAt:])
	}
	var look struct {
		Tail uint64 `json:"tail_transaction"`
	}
	out := must(v.t, "nvj", "inspect", v.pmem, "--offset", fmt.Sprint(v.offset), "--json")
	if err := json.Unmarshal([]byte(out), &look); err != nil {
		v.t.Fatalf("%v: %s", err, out)
	}
	return mark, look.Tail
}

// markBeyondTheEnd makes a superblock name a block for the mark beyond the end of
// the disk.
func markBeyondTheEnd(b []byte) {
	const superAt, roCompatAt, blockAt, sumAt = 1024, 0x64, 0x3f4, 0x3fc
	const hasSum = 0x400
	super := b[superAt : superAt+1024]
	binary.LittleEndian.PutUint64(super[blockAt:], 1<<40)
	if binary.LittleEndian.Uint32(super[roCompatAt:])&hasSum != 0 {
		sum := ^crc32.Checksum(super[:sumAt], crc32.MakeTable(crc32.Castagnoli))
		binary.LittleEndian.PutUint32(super[sumAt:], sum)
	}
}

func olderCopy(t *testing.T, s system) {
	v := s.make(t, smallPlan(s))
	check := scripted(t, v.dir, 2, 100)
	older := v.unclean()
	began := v.statistics()["checkpoints"]
	const mostRounds = 20
	for round := 0; v.statistics()["checkpoints"] < began+2; round++ {
		if round == mostRounds {
			t.Fatalf("no checkpoints: %v", v.statistics())
		}
		if err := churn(filepath.Join(v.dir, "churn"), 1000); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(v.dir, "newer"), []byte("newer"), 0o644); err != nil {
		t.Fatal(err)
	}
	newer := v.unclean()
	v.unmount()

	stale := unclean{newer.disk, older.region}
	t.Run("mount", func(t *testing.T) {
		v.refusedMount(t, stale, 0, "older copy")
		v.refusedMount(t, stale, unix.MS_RDONLY, "older copy")
	})
	t.Run("nvj recover", func(t *testing.T) {
		stale.restore(t)
		out, err := run("nvj", "recover", v.pmem, "--offset", fmt.Sprint(v.offset), "--target", v.disk)
		if err == nil || !strings.Contains(out, "older copy") {
			t.Errorf("%v: %s", err, out)
		}
		stale.untouched(t)
	})
	t.Run("a mark that cannot be read", func(t *testing.T) {
		v.refusedMount(t, unclean{newer.disk.changed(t, markBeyondTheEnd), newer.region}, 0,
			"cannot be read", "nvj recover "+v.pmem, "--target "+v.disk+" --any-disk")
	})
	t.Run("the region itself", func(t *testing.T) {
		for _, by := range []string{"mount", "nvj"} {
			newer.restore(t)
			if by == "nvj" {
				must(t, "nvj", "recover", v.pmem, "--offset", fmt.Sprint(v.offset), "--target", v.disk)
			}
			v.mount()
			check(v.dir)
			if text, err := os.ReadFile(filepath.Join(v.dir, "newer")); err != nil || string(text) != "newer" {
				t.Errorf("%q, %v", text, err)
			}
			v.end(check)
		}
	})
}
