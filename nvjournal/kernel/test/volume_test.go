package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/nvjournal/kernel/test/tree"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// plan describes how a volume is made.
type plan struct {
	disk     string   // a device; "": disk0
	features []string // more of mke2fs's arguments
	options  []string // of mount, besides the journal's
	blocks   int      // of 4096 bytes; 0: the whole disk
	// The journal's slice of the persistent memory, bytes.
	pmem         string // a device; "": pmem0
	offset, size int    // size 0: twice the smallest
	journalMB    int    // stock ext4's own journal; 0: mke2fs's choice
	placement    string // of records in partitions, as nvj format takes it; "": its choice
}

// volume is a file system on a disk, mounted or not.
type volume struct {
	plan
	t       *testing.T
	system  system
	dir     string
	mounted bool
}

// make makes a file system, and an empty journal, and mounts it.
func (s system) make(t *testing.T, p plan) *volume {
	t.Helper()
	v := s.volume(t, p)
	v.mkfs()
	v.mount()
	return v
}

// volume returns a volume that exists or will be made. It is unmounted at the end
// of the test in any case.
func (s system) volume(t *testing.T, p plan) *volume {
	t.Helper()
	if p.disk == "" {
		p.disk = vmtest.Device(t, "disk0")
	}
	if p.pmem == "" {
		p.pmem = vmtest.Device(t, "pmem0")
	}
	if p.size == 0 {
		p.size = 2 * s.smallestJournal()
	}
	// A short path, because names of sockets and some programs' buffers are short.
	dir, err := os.MkdirTemp("", "v")
	if err != nil {
		t.Fatal(err)
	}
	v := &volume{plan: p, t: t, system: s, dir: dir}
	t.Cleanup(func() {
		if v.mounted {
			_ = unix.Unmount(v.dir, unix.MNT_DETACH)
		}
		_ = os.Remove(v.dir)
	})
	return v
}

// mkfs makes a file system, and an empty journal.
func (v *volume) mkfs() {
	v.t.Helper()
	if v.system.jfs {
		v.mkfsJFS()
		return
	}
	args := []string{"-q", "-F", "-t", "ext4", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"}
	if v.journalMB > 0 {
		args = append(args, "-J", fmt.Sprintf("size=%d", v.journalMB))
	}
	args = append(append(args, v.features...), v.disk)
	if v.blocks > 0 {
		args = append(args, fmt.Sprint(v.blocks))
	}
	must(v.t, "mke2fs", args...)
	if v.system.ours() {
		v.format()
	}
}

// format makes an empty journal in the slice, whatever was there.
func (v *volume) format() {
	v.t.Helper()
	args := []string{"format", v.pmem, "--force", "--offset", fmt.Sprint(v.offset), "--size", fmt.Sprint(v.size), "--partitions", fmt.Sprint(v.system.partitions)}
	if v.placement != "" {
		args = append(args, "--placement", v.placement)
	}
	must(v.t, "nvj", args...)
}

// data returns the options of mount(2) for ours or for stock ext4.
func (v *volume) data(more ...string) string {
	var list []string
	if v.system.ours() {
		list = append(list, "journal_path="+v.pmem, fmt.Sprintf("journal_offset=%d", v.offset), fmt.Sprintf("journal_size=%d", v.size), fmt.Sprintf("partitions=%d", v.system.partitions))
	}
	if v.system.small {
		list = append(list, "journal_data=small")
	}
	if v.system.handles {
		list = append(list, "log=handle")
	}
	return strings.Join(append(append(list, v.options...), more...), ",")
}

func (v *volume) fstype() string {
	if v.system.ours() {
		return v.stockType() + "nvj"
	}
	return v.stockType()
}

// stockType is the kernel's own type.
func (v *volume) stockType() string {
	if v.system.jfs {
		return "jfs"
	}
	return "ext4"
}

// tryMount mounts it as its system, with further options.
func (v *volume) tryMount(more ...string) error {
	err := unix.Mount(v.disk, v.dir, v.fstype(), 0, v.data(more...))
	v.mounted = v.mounted || err == nil
	return err
}

func (v *volume) mount(more ...string) {
	v.t.Helper()
	seen := logMark(v.t)
	if err := v.tryMount(more...); err != nil {
		v.t.Fatalf("mount -t %s -o %s %s: %v; the kernel says:\n%s", v.fstype(), v.data(more...), v.disk, err, logSince(v.t, seen))
	}
}

func (v *volume) unmount() {
	v.t.Helper()
	var err error
	// Another process, such as udev, may still have it open.
	await(func() bool {
		err = unix.Unmount(v.dir, 0)
		return !errors.Is(err, unix.EBUSY)
	})
	if err != nil {
		v.t.Fatalf("unmount %s (%s): %v", v.dir, v.disk, err)
	}
	v.mounted = false
}

// take reads the tree.
func (v *volume) take() tree.Tree {
	v.t.Helper()
	read, err := tree.Take(v.dir)
	if err != nil {
		v.t.Fatal(err)
	}
	return read
}

// fsck runs stock e2fsck or fsck.jfs, which must find nothing and change nothing.
func (v *volume) fsck() {
	v.t.Helper()
	if v.system.jfs {
		v.fsckJFS()
		return
	}
	if out, err := run("e2fsck", "-fn", v.disk); err != nil {
		v.t.Fatalf("e2fsck -fn: %v:\n%s", err, out)
	}
}

// end is what each volume must come to: unmounted, clean, and mounted by the stock
// file system the same tree. look, if there is one, looks at it there.
func (v *volume) end(look func(dir string)) {
	v.t.Helper()
	before := v.take()
	v.unmount()
	v.fsck()
	v.sameInStock(before, look)
}

// sameInStock mounts it by the stock file system, and compares; nil: with nothing.
func (v *volume) sameInStock(before tree.Tree, look func(dir string)) {
	v.t.Helper()
	var options []string
	for _, o := range v.options {
		if strings.HasPrefix(o, "data=") || o == "usrquota" {
			options = append(options, o)
		}
	}
	if err := unix.Mount(v.disk, v.dir, v.stockType(), 0, strings.Join(options, ",")); err != nil {
		v.t.Fatalf("stock %s does not mount it: %v", v.stockType(), err)
	}
	v.mounted = true
	if before == nil {
		// there is nothing to compare with
	} else if err := tree.Compare(before, v.take()); err != nil {
		v.t.Errorf("as stock %s reads it: %v", v.stockType(), err)
	}
	if look != nil {
		look(v.dir)
	}
	v.unmount()
}

// run runs a program and returns its output.
func run(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	return string(out), err
}

// exitStatus is that of a program that failed; -1: it did not run to its end.
func exitStatus(err error) int {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return -1
	}
	return exit.ExitCode()
}

func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := run(name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v:\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// logMark marks the end of the kernel's log.
func logMark(t *testing.T) string {
	t.Helper()
	mark := fmt.Sprintf("daybook test mark %d", time.Now().UnixNano())
	if err := os.WriteFile("/dev/kmsg", []byte("<7>"+mark), 0); err != nil {
		t.Fatal(err)
	}
	return mark
}

// logSince returns the kernel's messages since the mark.
func logSince(t *testing.T, mark string) string {
	t.Helper()
	const readAll = 3 // SYSLOG_ACTION_READ_ALL
	b := make([]byte, 1<<20)
	n, err := unix.Klogctl(readAll, b)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := bytes.Cut(b[:n], []byte(mark))
	return string(after)
}
