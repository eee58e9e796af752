package test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/nvjournal/kernel/test/crash"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// smallPlan is a volume that can be copied quickly.
func smallPlan(s system) plan {
	if s.jfs { // its journal may have a tenth of the disk
		return plan{blocks: 12288, journalMB: 4, size: s.smallestJournal()}
	}
	return plan{blocks: 6144, journalMB: 4, size: s.smallestJournal()}
}

// crashed makes a volume, runs scripts on it, and leaves it like a crash.
func crashed(t *testing.T, s system, p plan) (*volume, unclean, func(dir string)) {
	t.Helper()
	v := s.make(t, p)
	check := scriptedAs(t, v.dir, crash.Script{Seed: loadSeed, LazyInodes: s.jfs}, 2, 150)
	u := v.unclean()
	v.unmount()
	if v.needsRecovery() {
		t.Error("an unmounted disk says that it needs recovery")
	}
	u.restore(t)
	if !v.needsRecovery() {
		t.Error("an unclean disk does not say so")
	}
	return v, u, check
}

// The volume that a crash leaves is recovered by a mount, by nvj, by a read-only
// mount, and again after a crash during recovery.
func recovery(t *testing.T, s system) {
	v, u, check := crashed(t, s, smallPlan(s))
	t.Run("mount", func(t *testing.T) {
		v.mount()
		check(v.dir)
		v.end(check)
	})
	t.Run("nvj recover", func(t *testing.T) {
		u.restore(t)
		must(t, "nvj", "recover", v.pmem, "--offset", fmt.Sprint(v.offset), "--target", v.disk)
		v.fsck()
		v.sameInStock(nil, check)
		v.mount()
		v.end(check)
	})
	t.Run("read-only", func(t *testing.T) {
		u.restore(t)
		if err := unix.Mount(v.disk, v.dir, v.fstype(), unix.MS_RDONLY, v.data()); err != nil {
			t.Fatal(err)
		}
		v.mounted = true
		check(v.dir)
		v.end(check)
	})
	t.Run("half of the superblock", func(t *testing.T) {
		// One copy has a length that no region has: the other one counts.
		u.restore(t)
		damaged := *u.region
		damaged.bytes = aligned(t, len(u.region.bytes))
		copy(damaged.bytes, u.region.bytes)
		damaged.bytes[48+5] ^= 1 // nvj_disk_super.size_bytes
		damaged.restore(t)
		v.mount()
		check(v.dir)
		v.end(check)
	})
	// Some blocks are at home; according to the region, none is.
	u.restore(t)
	v.mount()
	v.unmount()
	home := takeImage(t, v.disk, 0, v.blocks*4096)
	random := rand.New(rand.NewPCG(loadSeed, 3))
	for round := range scaled(1, 5) {
		t.Run(fmt.Sprintf("an interrupted one by mount %d", round), func(t *testing.T) {
			u.restoreHalf(t, s, home, random)
			v.mount()
			check(v.dir)
			v.end(check)
		})
		t.Run(fmt.Sprintf("an interrupted one by nvj recover %d", round), func(t *testing.T) {
			u.restoreHalf(t, s, home, random)
			must(t, "nvj", "recover", v.pmem, "--offset", fmt.Sprint(v.offset), "--target", v.disk)
			v.fsck()
			v.sameInStock(nil, check)
		})
	}
}

// restoreHalf restores it, but of the disk a random half of the blocks is as at home.
func (u unclean) restoreHalf(t *testing.T, s system, home *image, random *rand.Rand) {
	t.Helper()
	some := *u.disk
	some.bytes = aligned(t, len(u.disk.bytes))
	copy(some.bytes, u.disk.bytes)
	// The superblocks say that the disk needs recovery; they are written last. The mark of
	// the tail is written after the tail of the region, which here has not moved.
	kept := s.superblocks()
	if s.jfs {
		const markBlockAt = 0x8000 + 2048 + 24 // nvjournal/jfs/super.c
		kept = append(kept, int(binary.LittleEndian.Uint64(u.disk.bytes[markBlockAt:])))
	}
	for block := range len(some.bytes) / 4096 {
		if !slices.Contains(kept, block) && random.IntN(2) == 0 {
			copy(some.bytes[block*4096:(block+1)*4096], home.bytes[block*4096:])
		}
	}
	unclean{&some, u.region}.restore(t)
}

// superblocks are the blocks that say whether a disk needs recovery.
func (s system) superblocks() []int {
	if s.jfs {
		return []int{0x8000 / 4096, 0xf000 / 4096}
	}
	return []int{0}
}

// A volume that must not be mounted is refused with a reason, and nothing is
// written.
func refused(t *testing.T, s system) {
	v, u, check := crashed(t, s, smallPlan(s))
	// An older copy of the region: from an earlier mount of the same disk.
	older := *u.region
	older.bytes = aligned(t, len(u.region.bytes))
	copy(older.bytes, u.region.bytes)
	v.mount()
	if err := os.WriteFile(filepath.Join(v.dir, "newer"), []byte("newer"), 0o644); err != nil {
		t.Fatal(err)
	}
	u = v.unclean()
	v.unmount()

	refuse := func(name, said string, spoil func(t *testing.T) unclean, options ...string) {
		t.Run(name, func(t *testing.T) {
			u.restore(t)
			is := u
			if spoil != nil {
				is = spoil(t)
			}
			seen := logMark(t)
			w := *v
			w.t = t
			err := w.tryMount(options...)
			if err == nil {
				w.unmount()
				t.Fatal("it was mounted")
			}
			if log := logSince(t, seen); !strings.Contains(log, said) || !strings.Contains(log, "EXT4NVJ-fs") {
				t.Errorf("refused with %v; the kernel says, without %q:\n%s", err, said, log)
			}
			is.untouched(t)
		})
	}
	region := func(change func(t *testing.T, b []byte)) func(t *testing.T) unclean {
		return func(t *testing.T) unclean {
			i := *u.region
			i.bytes = aligned(t, len(u.region.bytes))
			copy(i.bytes, u.region.bytes)
			change(t, i.bytes)
			i.restore(t)
			return unclean{u.disk, &i}
		}
	}
	refuse("an older copy of the region", "needs recovery from journal", region(func(t *testing.T, b []byte) { copy(b, older.bytes) }))
	refuse("no journal in the region", "nvj format", region(func(t *testing.T, b []byte) { clear(b) }))
	refuse("a region of another disk", "belongs to disk 01234567-89ab-cdef-0123-456789abcdef", func(t *testing.T) unclean {
		must(t, "nvj", "format", v.pmem, "--force", "--offset", fmt.Sprint(v.offset), "--size", fmt.Sprint(v.size), "--partitions", fmt.Sprint(s.partitions),
			"--disk-uuid", "01234567-89ab-cdef-0123-456789abcdef")
		return unclean{u.disk, takeImage(t, v.pmem, int64(v.offset), v.size)}
	})
	refuse("a region that was formatted anew", "needs recovery from journal", func(t *testing.T) unclean {
		must(t, "nvj", "format", v.pmem, "--force", "--offset", fmt.Sprint(v.offset), "--size", fmt.Sprint(v.size), "--partitions", fmt.Sprint(s.partitions))
		return unclean{u.disk, takeImage(t, v.pmem, int64(v.offset), v.size)}
	})
	refuse("a region that is not there", "journal", nil, "journal_path=/dev/none")
	refuse("a region that is no persistent memory", "journal", nil, "journal_path="+vmtest.Device(t, "disk1"))
	refuse("another place", "journal", nil, fmt.Sprintf("journal_offset=%d", 4096))
	refuse("a slice that is too short", "journal", nil, fmt.Sprintf("journal_size=%d", 1<<20))
	refuse("not loading the journal", "noload", nil, "noload")
	for n := range scaled(3, 40) {
		refuse(fmt.Sprintf("a flipped bit %d", n), "at byte ", region(func(t *testing.T, b []byte) { flipCommitted(t, v, b, uint64(n)) }))
	}

	t.Run("stock ext4", func(t *testing.T) {
		u.restore(t)
		if err := unix.Mount(v.disk, v.dir, "ext4", 0, ""); !errors.Is(err, unix.EINVAL) {
			t.Errorf("mounted an unclean disk: %v", err)
			_ = unix.Unmount(v.dir, 0)
		}
		for _, flag := range []string{"-fn", "-fp", "-fy"} {
			if out, err := run("e2fsck", flag, v.disk); err == nil {
				t.Errorf("e2fsck %s takes an unclean disk:\n%s", flag, out)
			}
		}
		u.untouched(t)
	})
	t.Run("nvj with a damaged region", func(t *testing.T) {
		u.restore(t)
		is := region(func(t *testing.T, b []byte) { flipCommitted(t, v, b, 99) })(t)
		if out, err := run("nvj", "recover", v.pmem, "--offset", fmt.Sprint(v.offset), "--target", v.disk); err == nil {
			t.Errorf("recovered from a damaged region:\n%s", out)
		}
		is.untouched(t)
	})

	// After all of this, nothing is lost.
	u.restore(t)
	v.mount()
	check(v.dir)
	if text, err := os.ReadFile(filepath.Join(v.dir, "newer")); err != nil || string(text) != "newer" {
		t.Errorf("%q, %v", text, err)
	}
	v.end(check)

	t.Run("a clean disk with the region of another", func(t *testing.T) {
		other := s.volume(t, plan{disk: vmtest.Device(t, "disk1"), blocks: v.blocks, size: v.size, journalMB: 4})
		region := takeImage(t, v.pmem, 0, v.size)
		other.mkfs() // which formats the region, too
		region.restore(t)
		is := unclean{takeImage(t, other.disk, 0, other.blocks*4096), region}
		seen := logMark(t)
		if err := other.tryMount(); err == nil {
			other.unmount()
			t.Fatal("it was mounted")
		}
		if log := logSince(t, seen); !strings.Contains(log, "belongs to disk") {
			t.Errorf("the kernel says: %s", log)
		}
		is.untouched(t)
	})
	t.Run("a disk that stock ext4 left unclean", func(t *testing.T) {
		w := stock.make(t, plan{blocks: v.blocks, journalMB: 4})
		stormed(t, w.dir, 2, 50)
		w.pmem, w.size = v.pmem, v.size
		is := w.unclean()
		w.unmount()
		is.disk.restore(t)
		w.system = s
		w.format()
		is.region = takeImage(t, w.pmem, 0, w.size)
		seen := logMark(t)
		if err := w.tryMount(); err == nil {
			w.unmount()
			t.Fatal("it was mounted")
		}
		if log := logSince(t, seen); !strings.Contains(log, "e2fsck") {
			t.Errorf("the kernel says: %s", log)
		}
		is.untouched(t)
		// And stock ext4 can still recover it.
		w.system = stock
		w.mount()
		w.end(nil)
	})
	t.Run("what is not supported", func(t *testing.T) {
		for name, o := range map[string]struct {
			features []string
			options  string
			said     string
		}{
			"data journal":           {nil, "data=journal", "data=journal"},
			"blocks of 1024 bytes":   {[]string{"-b", "1024"}, "", "4096"},
			"fast commits":           {[]string{"-O", "fast_commit"}, "", "fast"},
			"no journal on the disk": {[]string{"-O", "^has_journal"}, "", "has_journal"},
			"too many partitions":    {nil, "partitions=65", "partitions"},
			"no such records":        {nil, "records=words", "records"},
			"no such time to log":    {nil, "log=never", "log"},
		} {
			t.Run(name, func(t *testing.T) {
				w := s.volume(t, plan{blocks: 8192, features: o.features, size: v.size})
				w.mkfs()
				seen := logMark(t)
				if err := w.tryMount(o.options); err == nil {
					w.unmount()
					t.Fatal("it was mounted")
				}
				if log := logSince(t, seen); !strings.Contains(log, o.said) {
					t.Errorf("the kernel says, without %q: %s", o.said, log)
				}
			})
		}
	})
}

// flipCommitted flips a bit of a committed record in a copy of the region, and on
// the device. nvj reports where the records are.
func flipCommitted(t *testing.T, v *volume, region []byte, seed uint64) {
	t.Helper()
	var look struct {
		Offset    uint64 `json:"partition_offset_bytes"`
		RingBytes uint64 `json:"ring_bytes"`
		RingLines uint64 `json:"ring_lines"`
		Rings     []struct {
			Low  uint64 `json:"low_lines"`
			High uint64 `json:"high_lines"`
		} `json:"rings"`
	}
	out := must(t, "nvj", "inspect", v.pmem, "--offset", fmt.Sprint(v.offset), "--json")
	if err := json.Unmarshal([]byte(out), &look); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	random := rand.New(rand.NewPCG(seed, 9))
	for _, n := range random.Perm(len(look.Rings)) {
		r := look.Rings[n]
		if r.High <= r.Low {
			continue
		}
		line := (r.Low + random.Uint64N(r.High-r.Low)) % look.RingLines
		region[look.Offset+uint64(n)*look.RingBytes+line*64+random.Uint64N(64)] ^= 1 << random.IntN(8)
		return
	}
	t.Fatalf("nothing is committed and not at home: %s", out)
}
