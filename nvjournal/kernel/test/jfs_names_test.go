package test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/posix"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// Attributes in the inode and in blocks of their own; set by several threads at once on
// the same files, grown, shrunk, and removed except for the last one, whose block stock
// JFS loses.
func jfsAttributes(t *testing.T, s system) {
	v := s.make(t, plan{})
	const files, threads = 24, 3
	path := func(n int) string { return filepath.Join(v.dir, fmt.Sprintf("file%d", n)) }
	value := func(n, size int) []byte { return bytes.Repeat([]byte{byte(1 + n)}, size) }
	for n := range files {
		if err := os.WriteFile(path(n), []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setxattr(path(n), "user.stays", value(n, 10), 0); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	errs := make([]error, threads)
	for thread := range threads {
		name := fmt.Sprintf("trusted.of%d", thread)
		all.Go(func() {
			for round, size := range []int{8, 90, 600, 4000, 9000, 50, 5000 * (thread + 1)} {
				for n := range files {
					if err := unix.Setxattr(path(n), name, value(n, size), 0); err != nil {
						errs[thread] = fmt.Errorf("%s of %d bytes on %s: %w", name, size, path(n), err)
						return
					}
					if n%4 != round%4 {
						continue
					}
					if err := unix.Removexattr(path(n), name); err != nil {
						errs[thread] = fmt.Errorf("removal of %s from %s: %w", name, path(n), err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < files; n += 5 {
		if err := os.Remove(path(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Setxattr(path(1), "user.large", make([]byte, 65536), 0); err == nil {
		t.Error("an attribute of 65536 bytes was accepted beside others")
	}
	v.end(func(dir string) {
		got := make([]byte, 64)
		for n := range files {
			if size, err := unix.Getxattr(filepath.Join(dir, fmt.Sprintf("file%d", n)), "user.stays", got); n%5 != 0 && (err != nil || !bytes.Equal(got[:size], value(n, 10))) {
				t.Errorf("file%d has another attribute: %v", n, err)
			}
		}
	})
}

// accessList is a list of access rights as the kernel takes it: user and group of the
// file, user 1000, others.
func accessList(ofUser uint16) []byte {
	const anybody = 0xffffffff
	list := binary.LittleEndian.AppendUint32(nil, 2)
	for _, entry := range []struct {
		tag, rights uint16
		id          uint32
	}{{1, 6, anybody}, {2, ofUser, 1000}, {4, 4, anybody}, {16, 6, anybody}, {32, 0, anybody}} {
		list = binary.LittleEndian.AppendUint16(list, entry.tag)
		list = binary.LittleEndian.AppendUint16(list, entry.rights)
		list = binary.LittleEndian.AppendUint32(list, entry.id)
	}
	return list
}

// Access control lists apply, are inherited from a directory, and stay.
func jfsAccessLists(t *testing.T, s system) {
	v := s.make(t, plan{})
	parent := filepath.Join(v.dir, "parent")
	if err := os.Mkdir(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(parent, "system.posix_acl_default", accessList(4), 0); err != nil {
		t.Fatal(err)
	}
	for n := range 30 {
		child := filepath.Join(parent, fmt.Sprint(n))
		if err := os.WriteFile(child, []byte("content"), 0o660); err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 {
			if err := unix.Setxattr(child, "system.posix_acl_access", accessList(6), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(dir string) {
		for n := range 30 {
			want, got := uint16(4), make([]byte, 256)
			if n%2 == 0 {
				want = 6
			}
			size, err := unix.Getxattr(filepath.Join(dir, "parent", fmt.Sprint(n)), "system.posix_acl_access", got)
			if err != nil || !bytes.Equal(got[:size], accessList(want)) {
				t.Errorf("the list of file %d is %x: %v; want %x", n, got[:max(size, 0)], err, accessList(want))
			}
		}
	}
	check(v.dir)
	v.end(check)
}

// Symbolic links in the inode and in blocks of their own, made, replaced and removed.
func jfsLinks(t *testing.T, s system) {
	v := s.make(t, plan{})
	target := func(n int) string { return strings.Repeat(fmt.Sprintf("%04d/", n), 1+n*n%700) }
	const links = 120
	for n := range links {
		path := filepath.Join(v.dir, fmt.Sprint("link", n))
		if err := os.Symlink(target(n), path); err != nil {
			t.Fatal(err)
		}
		if n%3 == 0 {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		if n%3 == 1 {
			if err := os.Rename(path, filepath.Join(v.dir, "moved")); err != nil {
				t.Fatal(err)
			}
		}
	}
	v.end(func(dir string) {
		for n := 2; n < links; n += 3 {
			if got, err := os.Readlink(filepath.Join(dir, fmt.Sprint("link", n))); err != nil || got != target(n) {
				t.Errorf("link %d has %d bytes, want %d: %v", n, len(got), len(target(n)), err)
			}
		}
	})
}

// A file system in which a and A are one name.
func jfsFoldedCase(t *testing.T, s system) {
	v := s.make(t, plan{features: []string{"-O"}})
	check := jfsScripted(t, v.dir, 2, scaled(150, 1500))
	for _, name := range []string{"UPPER", "lower", "Mixed"} {
		if err := os.WriteFile(filepath.Join(v.dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(v.dir, "upper")); err != nil || string(text) != "UPPER" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.Rename(filepath.Join(v.dir, "LOWER"), filepath.Join(v.dir, "other")); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(v.dir, "mIXED")); err != nil {
		t.Error(err)
	}
	v.stormed(3, scaled(100, 1500))
	v.end(check)
}

// System calls answer as on stock JFS. An emulated clock may stand still between two
// calls, so that a time seems unchanged; then all are made again.
func jfsSystemCalls(t *testing.T, s system) {
	answers := func(of system) []string {
		v := of.make(t, plan{})
		steps, wrong, err := posix.Run(v.dir)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, w := range wrong {
			all = append(all, fmt.Sprint(w))
		}
		slices.Sort(all)
		t.Logf("%s: %d steps, of which %d are not as on ext4", of.name, steps, len(wrong))
		v.end(nil)
		return all
	}
	for try := range 3 {
		ofStock, here := answers(stockJFS), answers(s)
		if slices.Equal(ofStock, here) {
			break
		}
		if try == 2 {
			t.Errorf("on stock JFS these answers are not ext4's:\n%s\nhere:\n%s", strings.Join(ofStock, "\n"), strings.Join(here, "\n"))
		}
	}
}

// Data cannot be written to its place: fsync says so, and the file system takes no
// more changes. What was synced before is there when the disk works again.
func jfsFailedData(t *testing.T, s system) {
	d := newDevice(t, vmtest.Device(t, "disk0"))
	node := must(t, "dmsetup", "info", "-c", "--noheadings", "-o", "blkdevname", d.name)
	v := s.make(t, plan{disk: filepath.Join("/dev", strings.TrimSpace(node))})
	check := jfsScripted(t, v.dir, 2, 100)
	path := filepath.Join(v.dir, "file")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("synced"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Sync(), atomicfile.SyncFileSystem(v.dir)); err != nil {
		t.Fatal(err)
	}
	d.become(d.failing())
	if _, err := file.WriteAt(make([]byte, 1<<20), 4096); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); !errors.Is(err, unix.EIO) {
		t.Errorf("fsync of data that the disk does not take: %v", err)
	}
	if err := atomicfile.SyncFileSystem(v.dir); !errors.Is(err, unix.EIO) && !errors.Is(err, unix.EROFS) {
		t.Errorf("syncfs after the disk has failed: %v", err)
	}
	if err := os.Mkdir(filepath.Join(v.dir, "late"), 0o755); !errors.Is(err, unix.EROFS) {
		t.Errorf("mkdir after the disk has failed: %v", err)
	}
	seen := logMark(t)
	if err := unix.Mount("", v.dir, "", unix.MS_REMOUNT, v.data()); !errors.Is(err, unix.EROFS) {
		t.Errorf("a remount after the journal has failed: %v", err)
	}
	if log := logSince(t, seen); !strings.Contains(log, "the journal has failed: unmount, and mount again") {
		t.Errorf("the kernel says:\n%s", log)
	}
	v.becomesReadOnly()
	if err := v.remountReadOnly(); err != nil {
		t.Errorf("a remount read-only after the journal has failed: %v", err)
	}
	file.Close()
	// The disk works again before the umount, which must not take it for one that has all.
	d.become(d.working())
	v.unmount()
	if !v.needsRecovery() {
		t.Error("the disk does not wait for its region")
	}
	v.mount()
	check(v.dir)
	if text, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(text), "synced") {
		t.Errorf("what was synced before is %.10q: %v", text, err)
	}
	v.unmount()
	v.fsck()
}

// Blocks of directories are freed and get file data, while the journal still has their
// old content. It is not carried home any more.
func jfsFreedBlocks(t *testing.T, s system) {
	v := s.make(t, plan{blocks: 8192, size: 8 * s.smallestJournal()})
	parent, err := os.Open(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const directories, names = 12, 150
	for d := range directories {
		dir := filepath.Join(v.dir, fmt.Sprint("dir", d))
		ok(os.Mkdir(dir, 0o755))
		for n := range names {
			ok(os.WriteFile(filepath.Join(dir, fmt.Sprintf("a-name-of-some-length-%04d", n)), nil, 0o644))
		}
	}
	// fsync only commits; a sync would also carry the blocks home.
	ok(parent.Sync())
	for d := range directories {
		ok(os.RemoveAll(filepath.Join(v.dir, fmt.Sprint("dir", d))))
	}
	ok(parent.Sync())
	time.Sleep(2500 * time.Millisecond) // until JFS's threads have freed them
	content := func(n int) []byte { return bytes.Repeat([]byte(fmt.Sprintf("%08d", n)), 65536/8) }
	files := 0
	for ; ; files++ {
		file, err := os.Create(filepath.Join(v.dir, fmt.Sprint("file", files)))
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		ok(err)
		_, err = file.Write(content(files))
		if err == nil {
			err = file.Sync()
		}
		file.Close()
		if errors.Is(err, unix.ENOSPC) {
			ok(os.Remove(file.Name()))
			break
		}
		ok(err)
	}
	if files < 200 {
		t.Errorf("only %d files of 64 KiB fit", files)
	}
	ok(v.ioctl(fifreeze, nil)) // carries home
	ok(v.ioctl(fithaw, nil))
	parent.Close()
	v.end(func(dir string) {
		for n := range files {
			got, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("file", n)))
			if err != nil || !bytes.Equal(got, content(n)) {
				t.Errorf("file %d has other content: %v", n, err)
			}
		}
	})
}
