package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// syncThread is JFS's thread that commits inodes while few locks are free.
const syncThread = "jfsnvjSync"

// heldWhileFew writes to files until few locks are free, and JFS's thread commits the inode of
// the first file. It is held up then before it calls a function.
func heldWhileFew(t *testing.T, files []*os.File, function string) (release func()) {
	t.Helper()
	release = heldBefore(t, kernelThread(t, syncThread), function)
	// A file has one lock. Of 256, few are free if 179 are in use, and a write waits from 204 on.
	for n, file := range files {
		if _, err := file.WriteAt(make([]byte, 4096), 0); err != nil {
			t.Fatal(err)
		}
		if n > 100 {
			time.Sleep(20 * time.Millisecond) // so that the thread runs
		}
		if hits(t) > 0 {
			return release
		}
	}
	t.Fatalf("few locks are free, and %s does not call %s", syncThread, function)
	return nil
}

// JFS's thread has an inode, and has not begun its transaction, when an extension begins to hold
// transactions up. The extension waits for that inode.
func jfsExtendedWhileFew(t *testing.T, s system) {
	needsKprobes(t)
	if !delays(t) {
		return
	}
	loadJFS(t, fewLocks)
	defer loadJFS(t)
	t.Run("extend", func(t *testing.T) {
		whole := newDevice(t, vmtest.Device(t, "disk0"))
		last := deviceNamed(t, "last", whole.disk)
		t.Cleanup(func() { whole.become(whole.working()) }) // else it cannot be removed
		v := s.make(t, plan{disk: whole.node(), blocks: unextended, journalMB: 4})
		files := v.emptyFiles(200)
		// The last block of the new log, which JFS writes after the kernel has synced the file system.
		last.become(last.delaying(0, untilReplaced, 0))
		on := last.node()
		whole.become(whole.except(extended-1, func(sector uint64) string { return fmt.Sprintf("linear %s %d", on, sector) }))
		resized := onProcessor(t, 0, func() error { return v.remountWith(fmt.Sprintf("resize=%d", extended)) })
		if !await(func() bool { return last.delayed().writes > 0 || len(resized.ended) > 0 }) || len(resized.ended) > 0 {
			t.Fatal("the extension does not write its log")
		}
		release := heldWhileFew(t, files, "jfsnvj:txBegin")
		last.become(last.working())
		if !await(func() bool { return isIn(t, resized.number, "txQuiesce") }) {
			t.Fatal("the extension does not wait for the inode")
		}
		release()
		if !await(func() bool { return len(resized.ended) > 0 }) {
			t.Fatal("the extension and JFS's thread wait for each other")
		}
		if err := <-resized.ended; err != nil {
			t.Error(err)
		}
		for _, file := range files {
			if err := file.Close(); err != nil {
				t.Error(err)
			}
		}
		v.end(nil)
	})
}

// JFS's thread has an inode when its file system is unmounted. The umount waits for it.
func jfsUnmountedWhileFew(t *testing.T, s system) {
	needsKprobes(t)
	loadJFS(t, fewLocks)
	defer loadJFS(t)
	t.Run("unmount", func(t *testing.T) {
		v := s.make(t, plan{blocks: 8192})
		files := v.emptyFiles(200)
		release := heldWhileFew(t, files, "iput")
		for _, file := range files {
			if err := file.Close(); err != nil {
				t.Error(err)
			}
		}
		seen := logMark(t)
		ended := inThread(func() error { return unix.Unmount(v.dir, 0) })
		// If this is too short, the test finds less.
		time.Sleep(5 * time.Second)
		if said := logSince(t, seen); strings.Contains(said, "Busy inodes") || len(ended) > 0 {
			t.Errorf("the umount does not wait for %s; the kernel says:\n%s", syncThread, said)
		}
		release()
		if !await(func() bool { return len(ended) > 0 }) {
			t.Fatal("the umount does not end")
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		v.mounted = false
		v.fsck()
		v.mount()
		v.end(nil)
	})
}

// A thread looks whether transactions are held up. An extension ends before the thread waits for
// that.
func jfsResumed(t *testing.T, s system) {
	needsKprobes(t)
	if !delays(t) {
		return
	}
	whole := newDevice(t, vmtest.Device(t, "disk0"))
	slow := deviceNamed(t, "slow", whole.disk)
	t.Cleanup(func() { whole.become(whole.working()) }) // else it cannot be removed
	v := s.make(t, plan{disk: whole.node(), blocks: unextended, journalMB: 4})
	path := filepath.Join(v.dir, "file")
	if err := errors.Join(os.WriteFile(path, nil, 0o644), atomicfile.SyncFileSystem(v.dir)); err != nil {
		t.Fatal(err)
	}
	// JFS's transactions of the extension have ended when it writes the second superblock, twice.
	const superCopy, wait = 15, 2 * time.Second
	slow.become(slow.delaying(0, wait, 0))
	on := slow.node()
	whole.become(whole.except(superCopy, func(sector uint64) string { return fmt.Sprintf("linear %s %d", on, sector) }))
	begin := make(chan bool)
	removed := onProcessor(t, 1, func() error {
		<-begin
		return unix.Unlink(path)
	})
	// It looks, and then enters the list of those that wait. This is shorter than what the kernel
	// takes for an error. If it is too short for the rest of the extension, the test finds less.
	busyBefore(t, removed.number, "add_wait_queue", 12*time.Second)
	resized := onProcessor(t, 0, func() error { return v.remountWith(fmt.Sprintf("resize=%d", extended)) })
	if !await(func() bool { return slow.delayed().writes > 0 || len(resized.ended) > 0 }) || len(resized.ended) > 0 {
		t.Fatal("the extension does not write the second superblock")
	}
	begin <- true
	if !await(func() bool { return hits(t) > 0 || len(removed.ended) > 0 }) || len(removed.ended) > 0 {
		t.Fatal("the transaction is not held up")
	}
	if !await(func() bool { return len(resized.ended) > 0 }) {
		t.Fatal("the extension does not end")
	}
	if err := <-resized.ended; err != nil {
		t.Error(err)
	}
	if !await(func() bool { return len(removed.ended) > 0 }) {
		t.Fatal("after the extension a thread still waits for its end")
	}
	if err := <-removed.ended; err != nil {
		t.Error(err)
	}
	whole.become(whole.working())
	v.end(nil)
}
