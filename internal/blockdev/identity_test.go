package blockdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/needs"
)

// Each file is another disk, with the host's sysfs and with one as before 5.15.
func TestALoopDeviceWithAnotherFileIsAnotherDisk(t *testing.T) {
	needs.Root(t)
	dir := t.TempDir()
	// As before 5.15: the same directories, but no diskseq.
	old := Tree{Sys: filepath.Join(dir, "sys"), Proc: "/proc"}
	var last, lastOld, name string
	for _, file := range []string{"a", "b"} {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 1<<20); err != nil {
			t.Fatal(err)
		}
		loop, err := Attach(path, AttachOptions{})
		needs.That(t, err == nil, "a loop device")
		t.Cleanup(func() { _ = loop.Detach(t.Context()) })
		if name != "" {
			needs.That(t, loop.Name == name, "no other program that uses loop devices meanwhile")
		}
		name = loop.Name
		at := filepath.Join(old.Sys, "block", name)
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		view := Disk{Name: name, Dev: loop.Dev, tree: old}
		if err := os.Symlink(filepath.Join("/sys/block", name, "loop"), filepath.Join(at, "loop")); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		for _, same := range []bool{false, true} {
			now, err := loop.Identity()
			if err != nil {
				t.Fatal(err)
			}
			nowOld, err := view.Identity()
			if err != nil {
				t.Fatal(err)
			}
			if (now == last) != same || (nowOld == lastOld) != same {
				t.Errorf("file %s: %q and %q after %q and %q", file, now, nowOld, last, lastOld)
			}
			last, lastOld = now, nowOld
		}
		if err := loop.Detach(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADiskThatIsGoneHasNoIdentity(t *testing.T) {
	tree := fakeTree(t)
	disk, err := tree.Lookup("vda")
	if err != nil {
		t.Fatal(err)
	}
	if identity, err := disk.Identity(); err != nil || identity == "" {
		t.Errorf("%q, %v", identity, err)
	}
	if err := os.RemoveAll(filepath.Join(tree.Sys, "devices/virtio1")); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Identity(); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
}

// The kernel keeps the queue of a loop device that gets another file. A disk that is added again has
// another one.
func TestTheInodeOfADiskIsThatOfItsQueue(t *testing.T) {
	needs.Root(t)
	dir := t.TempDir()
	inodes := map[string]uint64{}
	for _, file := range []string{"a", "b"} {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		loop, err := Attach(path, AttachOptions{})
		needs.That(t, err == nil, "a loop device")
		inode, err := loop.Inode()
		if detachErr := loop.Detach(t.Context()); err != nil || detachErr != nil || inode == 0 {
			t.Fatal(inode, err, detachErr)
		}
		if before := inodes[loop.Name]; before != 0 && before != inode {
			t.Errorf("%s with another file: inode %d, before %d", loop.Name, inode, before)
		}
		for name, other := range inodes {
			if name != loop.Name && other == inode {
				t.Errorf("%s and %s have the inode %d", name, loop.Name, inode)
			}
		}
		inodes[loop.Name] = inode
	}
}

func TestADiskThatIsAddedAgainHasAnotherInode(t *testing.T) {
	needs.Root(t)
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	needs.That(t, err == nil, "loop devices")
	defer control.Close()
	number := 100_000 + os.Getpid()%100_000
	var last uint64
	for range 3 {
		needs.That(t, unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_ADD, number) == nil, "a new loop device")
		inode, err := Disk{Name: fmt.Sprint("loop", number)}.Inode()
		if removeErr := unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, number); err != nil || removeErr != nil {
			t.Fatal(err, removeErr)
		}
		if inode == last {
			t.Errorf("the disk has the inode %d again", inode)
		}
		last = inode
	}
}

func TestASchedulerThatIsChosenAgainHasAnotherInode(t *testing.T) {
	needs.Root(t)
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	loop, err := Attach(path, AttachOptions{})
	needs.That(t, err == nil, "a loop device")
	t.Cleanup(func() { _ = loop.Detach(context.Background()) })
	disk, err := Lookup(loop.Name)
	if err != nil {
		t.Fatal(err)
	}
	before, err := disk.Scheduler()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = disk.SetScheduler(before.Current) })
	var last uint64
	for range 2 {
		needs.That(t, disk.SetScheduler(NoScheduler) == nil && disk.SetScheduler(BFQ) == nil, "the I/O scheduler bfq")
		inode := disk.SchedulerInode()
		if err := disk.SetTunable("low_latency", "0"); err != nil {
			t.Fatal(err)
		}
		if inode == 0 || inode == last || disk.SchedulerInode() != inode {
			t.Errorf("the inode is %d, then %d, before %d", inode, disk.SchedulerInode(), last)
		}
		last = inode
	}
	if err := disk.SetScheduler(NoScheduler); err != nil || disk.SchedulerInode() != 0 {
		t.Errorf("without a scheduler: %d, %v", disk.SchedulerInode(), err)
	}
}
