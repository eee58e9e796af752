package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// regionsInUse lists the slices in use, including those that programs claim.
const regionsInUse = "/proc/fs/ext4nvj/regions"

// Slices of one device are independent: one is formatted, inspected, recovered and
// mounted while another one is mounted. A slice that is in use is not changed.
func slicesApart(t *testing.T, s system) {
	size := 2 * s.smallestJournal()
	a := s.make(t, plan{blocks: 8192, journalMB: 4, size: size})
	end := background(t, a.dir)
	b := s.volume(t, plan{disk: vmtest.Device(t, "disk1"), blocks: 8192, journalMB: 4, offset: size, size: size})
	b.mkfs() // formats the slice, too
	b.mount()
	check := scripted(t, b.dir, 2, 100)

	place := func(v *volume) []string { return []string{v.pmem, "--offset", fmt.Sprint(v.offset)} }
	nvj := func(v *volume, command string, more ...string) (string, error) {
		return run("nvj", append(append([]string{command}, place(v)...), more...)...)
	}
	refuse := func(said string, v *volume, command string, more ...string) {
		t.Helper()
		out, err := nvj(v, command, more...)
		if err == nil || !strings.Contains(out, "in use") || !strings.Contains(out, said) {
			t.Errorf("nvj %s of a slice in use, without %q: %v: %s", command, said, err, out)
		}
	}
	inspect := func(v *volume) (verdict string, committed uint64) {
		t.Helper()
		var look struct {
			Verdict   string `json:"verdict"`
			Committed uint64 `json:"committed_transaction"`
		}
		out, err := nvj(v, "inspect", "--json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &look)
		}
		if err != nil {
			t.Fatalf("inspect: %v: %s", err, out)
		}
		return look.Verdict, look.Committed
	}

	t.Run("in use", func(t *testing.T) {
		for _, v := range []*volume{a, b} {
			by := "the mount of " + filepath.Base(v.disk)
			refuse(by, v, "format", "--size", fmt.Sprint(size), "--force")
			refuse(by, v, "recover", "--target", v.disk)
			refuse(by, v, "check")
			refuse(by, v, "dump")
		}
		// A part of it, and all that follows it.
		for _, part := range [][]string{{"--offset", fmt.Sprint(size / 2), "--size", fmt.Sprint(size)}, {"--offset", "0"}} {
			out, err := run("nvj", append([]string{"format", a.pmem, "--force"}, part...)...)
			if err == nil || !strings.Contains(out, "the mount of ") {
				t.Errorf("formatted a part, %v: %v: %s", part, err, out)
			}
		}
		for range 3 {
			if err := os.WriteFile(filepath.Join(b.dir, "again"), []byte("again"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := atomicfile.SyncFileSystem(b.dir); err != nil {
				t.Fatal(err)
			}
			// The visible state is not older than what was committed before.
			least := b.statistics()["committed_tid"]
			if verdict, committed := inspect(b); verdict != "in use" || committed < least {
				t.Errorf("inspect: %s, transaction %d of %d", verdict, committed, least)
			}
		}
		text, err := os.ReadFile(regionsInUse)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []*volume{a, b} {
			if line := fmt.Sprintf(" %d %d the mount of %s\n", v.offset, v.size, filepath.Base(v.disk)); !strings.Contains(string(text), line) {
				t.Errorf("%s has no %q:\n%s", regionsInUse, line, text)
			}
		}
		if err := unix.Mount(a.pmem, t.TempDir(), "ext4", 0, ""); !errors.Is(err, unix.EBUSY) {
			t.Errorf("mounting the memory itself: %v", err)
		}
	})

	t.Run("recovery beside a mount", func(t *testing.T) {
		u := b.unclean()
		b.unmount()
		u.restore(t)
		if out, err := nvj(b, "check"); err != nil || !strings.Contains(out, "to be recovered") {
			t.Errorf("check: %v: %s", err, out)
		}
		must(t, "nvj", "recover", b.pmem, "--offset", fmt.Sprint(b.offset), "--target", b.disk)
		b.fsck()
		b.mount()
		check(b.dir)
		b.end(check)
	})

	t.Run("a program's claim", func(t *testing.T) {
		file, err := os.OpenFile(regionsInUse, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := fmt.Fprintf(file, "%d %d %s", b.offset, b.size, b.pmem); err != nil {
			t.Fatal(err)
		}
		seen := logMark(t)
		if err := b.tryMount(); err == nil {
			b.unmount()
			t.Fatal("mounted, though a program has the slice")
		}
		if log := logSince(t, seen); !strings.Contains(log, fmt.Sprintf("[%d]", os.Getpid())) {
			t.Errorf("the kernel does not name the process: %s", log)
		}
		if _, err := fmt.Fprintf(file, "%d %d %s", b.offset+b.size, b.size, b.pmem); !errors.Is(err, unix.EBUSY) {
			t.Errorf("a second claim of one file: %v", err)
		}
		other, err := os.OpenFile(regionsInUse, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		for text, want := range map[string]error{
			fmt.Sprintf("%d %d %s", b.offset+4096, b.size, b.pmem): unix.EBUSY,
			fmt.Sprintf("%d %d %s", b.offset, 100, b.pmem):         unix.EINVAL,
			fmt.Sprintf("%d %d /dev/none", b.offset, b.size):       unix.ENOENT,
			fmt.Sprintf("0 4096 %s", b.disk):                       unix.EOPNOTSUPP,
			"0 4096":                                               unix.EINVAL,
			"":                                                     unix.EINVAL,
		} {
			if _, err := unix.Write(int(other.Fd()), []byte(text)); !errors.Is(err, want) {
				t.Errorf("claim %q: %v, not %v", text, err, want)
			}
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		b.mount()
		b.end(check)
	})

	t.Run("memory of others", func(t *testing.T) {
		pmem := vmtest.Device(t, "pmem1")
		must(t, "mke2fs", "-q", "-F", "-t", "ext4", pmem, "8192")
		dir := t.TempDir()
		if err := unix.Mount(pmem, dir, "ext4", 0, ""); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Unmount(dir, 0) }()
		if out, err := run("nvj", "format", pmem, "--force"); err == nil || !strings.Contains(out, "in use") {
			t.Errorf("formatted a mounted file system: %v: %s", err, out)
		}
	})
	end()
	t.Run("a slice that takes in another", func(t *testing.T) {
		a.unmount()
		other := takeImage(t, b.pmem, int64(b.offset), b.size)
		// Also if only its superblock is taken in.
		for _, bytes := range []int{2 * size, size + 4096} {
			seen := logMark(t)
			if err := a.tryMount(fmt.Sprintf("journal_size=%d", bytes)); err == nil {
				a.unmount()
				t.Errorf("it was mounted with %d bytes", bytes)
			}
			if log := logSince(t, seen); !strings.Contains(log, fmt.Sprintf("another journal, at byte %d", size)) {
				t.Errorf("%d bytes: the kernel says: %s", bytes, log)
			}
		}
		if place, same := other.same(t); !same {
			t.Errorf("the other one was written to, at byte %d", place)
		}
		a.mount()
	})
	a.end(nil)
}
