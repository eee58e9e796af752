package test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/nvjournal/kernel/test/storm"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/tree"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// A mounted file system is extended several times, in the long form under load. After each time a crash
// loses nothing, and a frozen disk has all.
func jfsResize(t *testing.T, s system) {
	v := s.make(t, plan{blocks: 12288, journalMB: 4, size: s.smallestJournal()})
	for n, blocks := range []int{16384, 24576, 40960}[:scaled(2, 3)] {
		before, _ := v.statfs()
		marked := v.markBlock()
		stormed := make(chan error, 1)
		load := func() {
			_, err := storm.Run(t.Context(), filepath.Join(v.dir, fmt.Sprintf("storm%d", n)), jfsStorm(3, scaled(60, 400)))
			stormed <- err
		}
		if scaled(0, 1) == 1 {
			go load()
		} else {
			load()
		}
		resized := v.remountWith(fmt.Sprintf("resize=%d", blocks))
		if err := errors.Join(resized, <-stormed); err != nil {
			t.Fatal(err)
		}
		after, _ := v.statfs()
		if least := uint64(blocks-v.blocks) * 8 / 10; after < before+least {
			t.Fatalf("%d blocks became %d, want at least %d more", before, after, least)
		}
		v.blocks = blocks
		if !isMarked(t, v.disk) || v.markBlock() == marked {
			t.Errorf("the disk is not marked at another place: %d", marked)
		}
		if err := v.ioctl(fifreeze, nil); err != nil {
			t.Fatal(err)
		}
		frozenIsClean(t, v)
		if err := v.ioctl(fithaw, nil); err != nil {
			t.Fatal(err)
		}

		// New files, in blocks that were not there, and a crash.
		for f := range 20 {
			if err := os.WriteFile(filepath.Join(v.dir, fmt.Sprintf("after%d-%d", n, f)), make([]byte, 1<<20), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want := v.take()
		u := v.unclean()
		v.unmount()
		u.restore(t)
		if n%2 == 0 {
			must(t, "nvj", "recover", v.pmem, "--offset", fmt.Sprint(v.offset), "--target", v.disk)
			v.fsck()
		}
		v.mount()
		if err := tree.Compare(want, v.take()); err != nil {
			t.Errorf("after the extension to %d blocks and a crash: %v", blocks, err)
		}
	}
	if err := v.remountWith("resize=1"); err != nil {
		t.Errorf("fewer blocks than it has: %v", err)
	}
	if err := v.remountWith(fmt.Sprintf("resize=%d", 2*diskBytes/4096)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("more blocks than the disk has: %v", err)
	}
	seen := logMark(t)
	if err := v.remountWith(fmt.Sprintf("resize=%d", v.blocks+16)); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("so few blocks that the new log overlaps the old one: %v", err)
	}
	if log := logSince(t, seen); !strings.Contains(log, "does not overlap the old one") {
		t.Errorf("the kernel does not say why it refuses:\n%s", log)
	}
	v.end(nil)
}

// remountWith remounts it with one more option.
func (v *volume) remountWith(option string) error {
	return unix.Mount("", v.dir, "", unix.MS_REMOUNT, v.data(option))
}

// markBlock is where the superblock says that the mark of the journal's tail is.
func (v *volume) markBlock() uint64 {
	v.t.Helper()
	// nvjournal/jfs/super.c: MARK_BLOCK_AT
	return binary.LittleEndian.Uint64([]byte(superblocks(v.t, v.disk))[2048+24:])
}

// The file system that is extended in a guest, and what extends it.
const (
	extendedDisk  = "/dev/daybook/disk0"
	extendedPmem  = "/dev/daybook/pmem0"
	mountExtended = "mount -t jfsnvj -o journal_path=" + extendedPmem + " " + extendedDisk + " /mnt\n"
	// The sums of the files are in the guest's memory, which a kill does not keep.
	makeExtended = "mkfs.jfs -q -s 4 " + extendedDisk + " 12288\nnvj format " + extendedPmem + "\nmkdir -p /mnt\n" + mountExtended +
		makeFiles + "cd /mnt; find . -type f -exec md5sum '{}' + >/tmp/sums; sync"
	makeFiles = "for n in $(seq 60); do mkdir -p /mnt/d$((n % 7)); seq $((n * 100)) >/mnt/d$((n % 7))/f$n; done\n"
	extend    = "mount -o remount,resize=24576,journal_path=" + extendedPmem + " /mnt"
)

func bootExtended(t *testing.T, kernel string) *vm.Machine {
	return bootJFS(t, vm.Config{
		Kernel: kernel,
		Disks:  []vm.Disk{{SizeBytes: 96 << 20, Volatile: true}},
		Pmem:   []vm.Pmem{{SizeBytes: 16 << 20}},
	})
}

// recoverExtended recovers the disk by nvj or by mounting, and checks all. It returns the
// size in blocks.
func recoverExtended(sh func(string) string, command bool) string {
	recover := mountExtended
	if command {
		recover = "nvj recover " + extendedPmem + " --target " + extendedDisk + " >/dev/null\nfsck.jfs -n -f -v " + extendedDisk + " >/tmp/found 2>&1 || true\n" +
			"grep -q 'Filesystem is clean' /tmp/found || { cat /tmp/found; exit 1; }\n" + mountExtended
	}
	return strings.TrimSpace(sh(recover + "stat -f -c %b /mnt\ncd /mnt; md5sum -s -c /tmp/sums; dd if=/dev/zero of=/mnt/new bs=1M count=10 2>/dev/null; cd /; umount /mnt\n" +
		"fsck.jfs -n -f -v " + extendedDisk + " >/tmp/found 2>&1 || true\n" +
		"grep -q 'Filesystem is clean' /tmp/found && ! grep -q errors /tmp/found || { cat /tmp/found; exit 1; }\n" +
		"mount -t jfs " + extendedDisk + " /mnt; cd /mnt; md5sum -s -c /tmp/sums; cd /; umount /mnt"))
}

// The guest is killed while it extends a file system. Recovery, by mounting or by nvj, makes it
// as it was before, or extends it. All files of before exist.
func TestGuestJFSResizeKilled(t *testing.T) {
	jfsSystems(t, jfsOne)
	vmtest.EachKernel(t, func(t *testing.T, kernel string) {
		m := bootExtended(t, kernel)
		sh := shellOf(t, m)
		sh(makeExtended)
		sums := sh("cat /tmp/sums")
		begin := time.Now()
		sh(extend)
		took := time.Since(begin)
		sh("umount /mnt")
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d; an extension takes %v", seed, took)
		random := rand.New(rand.NewPCG(seed, 6))
		sizes := map[string]int{}
		for round := range crashes(t, 2, 40) {
			sh(makeExtended)
			if _, err := m.Start(vm.Command{Args: []string{"sh", "-c", extend}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(random.Int64N(int64(took))))
			m.Kill() // at once: to look for faults first takes longer than the extension
			if err := m.Reboot(t.Context()); err != nil {
				t.Fatal(err)
			}
			sh = shellOf(t, m)
			sh("mkdir -p /mnt; cat >/tmp/sums <<'END'\n" + sums + "END\n")
			size := recoverExtended(sh, round%2 == 1)
			sizes[size]++
			t.Logf("round %d: %s blocks", round, size)
		}
		if t.Logf("sizes in blocks: %v", sizes); scaled(0, 1) == 1 && len(sizes) != 2 {
			t.Error("no kill was before the end of an extension, or all were")
		}
		faults(t, m)
	})
}

// The power fails at each flush while a file system is extended, with none, some or all of
// the writes before it on the disk. Recovery, by mounting or by nvj, makes it as it was
// before, or extends it, and needs no fsck.jfs. All files of before exist.
func TestGuestJFSResizePowerCuts(t *testing.T) {
	jfsSystems(t, jfsOne)
	vmtest.EachKernel(t, func(t *testing.T, kernel string) {
		m := bootExtended(t, kernel)
		sh := shellOf(t, m)
		sh(makeExtended)
		recording, err := m.Record(200)
		if err != nil {
			t.Fatal(err)
		}
		sh(extend)
		if err := recording.Now(); err != nil {
			t.Fatal(err)
		}
		points, err := recording.End()
		if err != nil {
			t.Fatal(err)
		}
		sh("umount /mnt")

		random := rand.New(rand.NewPCG(loadSeed, 5))
		sizes := map[string]int{}
		states := 0
		try := func(point int, survives func(int, int) bool) {
			if err := recording.Restore(point, survives); err != nil {
				t.Fatal(err)
			}
			size := recoverExtended(sh, states%2 == 1)
			states++
			sizes[size]++
			t.Logf("point %d of %d, %d writes: %s blocks", point, points, recording.Pending(point), size)
		}
		for point := range points {
			try(point, nil)
			try(point, func(int, int) bool { return true })
			if recording.Pending(point) > 1 {
				for range scaled(3, 40) {
					try(point, func(int, int) bool { return random.IntN(2) == 0 })
				}
			}
		}
		if len(sizes) != 2 {
			t.Errorf("sizes in blocks: %v, want the one of before and the one of after", sizes)
		}
		faults(t, m)
	})
}
