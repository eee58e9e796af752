package cgroup

import (
	"errors"
	"os"
	"strings"
	"testing"
)

const kib = 1024

func TestKernelCountsOfBFQDisk(t *testing.T) {
	tree, path := hostTree(t), ""
	disk := newLoopDisk(t, "bfq")
	path = hostCgroup(t, tree)
	disk.write(tree, path, 512)
	a := path + "/a"
	wants := countsOfTwoChildren(t, tree, path, disk, FromBFQ, 512)

	disk.use("none")
	if io, err := tree.IO(a); err != nil || io[disk.dev].From == FromBFQ {
		t.Errorf("no longer on BFQ: got %+v, %v", io[disk.dev], err)
	}
	disk.use("bfq")
	disk.write(tree, a, 64)
	wants(a, 0, 64) // BFQ restarted
}

// countsOfTwoChildren does I/O in two new children of a cgroup, which itself has written
// ownKiB, and checks the counters of all, also after one child was removed. wants checks
// a counter, in KiB.
func countsOfTwoChildren(t *testing.T, tree *Tree, path string, disk testDisk, from Source, ownKiB uint64) (wants func(path string, read, write uint64)) {
	t.Helper()
	a, b := path+"/a", path+"/b"
	makeCgroup(t, tree, a)
	makeCgroup(t, tree, b)
	disk.write(tree, a, 1024)
	disk.read(tree, a, 128)
	disk.write(tree, b, 2048)
	wants = func(path string, read, write uint64) {
		t.Helper()
		io, err := tree.IO(path)
		if want := (Counters{read * kib, write * kib, from}); err != nil || io[disk.dev] != want {
			t.Errorf("%s: got %+v, %v; want %+v", path, io[disk.dev], err, want)
		}
	}
	all := 1024 + 2048 + ownKiB
	wants(a, 128, 1024)
	wants(b, 0, 2048)
	wants(path, 128, all)
	if root, err := tree.IO("/"); err != nil || root[disk.dev].WriteBytes < all*kib {
		t.Errorf("root: got %+v, %v; want at least what its descendants did", root[disk.dev], err)
	}
	if err := os.Remove(tree.dir(b)); err != nil {
		t.Fatal(err)
	}
	wants(path, 128, all) // the bytes of b stay
	if _, err := tree.IO(b); !errors.Is(err, ErrVanished) {
		t.Errorf("removed cgroup: got %v; want ErrVanished", err)
	}
	return wants
}

func TestKernelCountsOfThrottledDiskWithoutBFQ(t *testing.T) {
	tree := hostTree(t)
	disk := newLoopDisk(t, "none")
	path := hostCgroup(t, tree)
	limit := Limit{ReadBps: 1 << 40}
	if err := tree.SetLimit(path, disk.dev, limit); err != nil {
		t.Fatal(err)
	}
	disk.write(tree, path, 256)
	io, err := tree.IO(path)
	if want := (Counters{0, 256 * kib, FromThrottle}); err != nil || io[disk.dev] != want {
		t.Errorf("got %+v, %v; want %+v", io[disk.dev], err, want)
	}
	disk.use("bfq")
	disk.write(tree, path, 64)
	io, err = tree.IO(path)
	if want := (Counters{0, 64 * kib, FromBFQ}); err != nil || io[disk.dev] != want {
		t.Errorf("under BFQ: got %+v, %v; want %+v", io[disk.dev], err, want)
	}
}

func TestKernelWeightIsSetReadAndRestored(t *testing.T) {
	tree := hostTree(t)
	disk, other := newLoopDisk(t, "bfq"), newLoopDisk(t, "bfq")
	path := hostCgroup(t, tree)
	w, err := tree.Weights(disk.dev, "bfq")
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.write(path, "blkio.bfq.weight_device", other.dev.String()+" 333"); err != nil {
		t.Fatal(err)
	}
	before, err := tree.read(path, "blkio.bfq.weight_device")
	if err != nil {
		t.Fatal(err)
	}
	found, err := w.Get(path)
	if err != nil || found != (Setting{Default: 100}) {
		t.Fatalf("new cgroup: got %+v, %v", found, err)
	}
	if err := w.Set(path, 700); err != nil {
		t.Fatal(err)
	}
	if s, err := w.Get(path); err != nil || s != (Setting{100, 700}) {
		t.Errorf("after Set: got %+v, %v", s, err)
	}
	if err := w.Restore(path, found); err != nil {
		t.Fatal(err)
	}
	if after, err := tree.read(path, "blkio.bfq.weight_device"); err != nil || string(after) != string(before) {
		t.Errorf("after Restore: the file holds %q, %v; want %q", after, err, before)
	}

	own := Setting{Default: 250, Device: 400}
	if err := w.Restore(path, own); err != nil {
		t.Fatal(err)
	}
	if s, err := w.Get(path); err != nil || s != own {
		t.Errorf("got %+v, %v; want %+v", s, err, own)
	}
	otherWeights, _ := tree.Weights(other.dev, "bfq")
	if s, err := otherWeights.Get(path); err != nil || s != (Setting{250, 333}) {
		t.Errorf("other disk: got %+v, %v; want its own weight kept", s, err)
	}
}

func TestKernelRestoreAfterSchedulerDiskOrCgroupIsGone(t *testing.T) {
	tree := hostTree(t)
	disk := newLoopDisk(t, "bfq")
	path := hostCgroup(t, tree)
	w, err := tree.Weights(disk.dev, "bfq")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Set(path, 700); err != nil {
		t.Fatal(err)
	}
	disk.use("none")
	if err := w.Set(path, 600); err == nil || !strings.Contains(err.Error(), "echo bfq > /sys/block/"+disk.name) {
		t.Errorf("Set without BFQ: got %v; want the command that repairs it", err)
	}
	for _, s := range []Setting{{Default: 100}, {Default: 100, Device: 300}} {
		if err := w.Restore(path, s); err != nil {
			t.Errorf("Restore without BFQ: %v", err)
		}
	}
	if s, err := w.Get(path); err != nil || s != (Setting{Default: 100}) {
		t.Errorf("got %+v, %v", s, err)
	}
	if err := os.Remove(tree.dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := w.Restore(path, Setting{Default: 100}); !errors.Is(err, ErrVanished) {
		t.Errorf("Restore of a removed cgroup: got %v; want ErrVanished", err)
	}
	if err := w.Set(path, 100); !errors.Is(err, ErrVanished) {
		t.Errorf("Set of a removed cgroup: got %v; want ErrVanished", err)
	}
}

func TestKernelLimitIsSetReadAndRestored(t *testing.T) {
	tree := hostTree(t)
	disk := newLoopDisk(t, "none")
	path := hostCgroup(t, tree)
	none, err := tree.Limits(path, disk.dev)
	if err != nil || none != (Limit{}) {
		t.Fatalf("got %+v, %v", none, err)
	}
	limit := Limit{ReadBps: 1 << 30, WriteBps: 1 << 20, ReadIOPS: 1000, WriteIOPS: 1<<32 - 2}
	if err := tree.SetLimit(path, disk.dev, limit); err != nil {
		t.Fatal(err)
	}
	if got, err := tree.Limits(path, disk.dev); err != nil || got != limit {
		t.Errorf("got %+v, %v; want %+v", got, err, limit)
	}
	if err := tree.SetLimit(path, disk.dev, none); err != nil {
		t.Fatal(err)
	}
	for _, key := range limitKeys {
		content, err := tree.read(path, v1LimitFile[key])
		if err != nil || len(content) != 0 {
			t.Errorf("%s holds %q, %v; want nothing", v1LimitFile[key], content, err)
		}
	}
}

func TestKernelProcessIsFoundInItsCgroup(t *testing.T) {
	tree := hostTree(t)
	got, err := tree.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Lookup(got); err != nil {
		t.Error(err)
	}
	if _, err := tree.Of(1 << 30); err == nil {
		t.Error("a process that is not gave no error")
	}
}
