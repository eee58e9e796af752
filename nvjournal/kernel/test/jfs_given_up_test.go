package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/tree"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// JFS gives up transactions half-way, because it cannot read a page of a directory, and is told to
// go on after errors. What they had locked is free again: their pages leave the memory, their
// changes are not on the disk, and no lock is lost.
func jfsGivenUp(t *testing.T, s system) {
	if !delays(t) {
		return
	}
	loadJFS(t, fewLocks)
	seen := logMark(t)
	t.Run("renames", func(t *testing.T) { renamesGivenUp(t, s) })
	loadJFS(t)
	if said := logSince(t, seen); strings.Contains(said, "WARNING") || strings.Contains(said, "BUG") || strings.Contains(said, "left") {
		t.Errorf("unloading: %s", said)
	}
}

// unreading is a table with which reads go to another device, and writes and flushes do not.
func (d *device) unreading(bad *device) string {
	return fmt.Sprintf("0 %d delay %s 0 0 %[3]s 0 0 %[3]s 0 0", d.sectors, bad.node(), d.disk)
}

// threePages is a directory whose names are in three pages. The second one has one name. The third
// one has a name, and places that are free in such an order that a name of 255 letters takes 18
// pieces.
type threePages struct{ dir string }

func (d threePages) name(start string, length int) string {
	return filepath.Join(d.dir, start+strings.Repeat("-", length-len(start)))
}

func (d threePages) second() string  { return d.name("b08", 200) }
func (d threePages) third() string   { return d.name("b16", 200) }
func (d threePages) renamed() string { return d.name("b17", 255) }

func makeThreePages(dir, file string) (threePages, error) {
	d := threePages{dir}
	errs := []error{os.Mkdir(dir, 0o755)}
	// Of the 123 places in a page a name of 200 letters takes 14, and a short one takes 1.
	const ofPage, short = 8, 36
	for n := range 2*ofPage + 1 {
		errs = append(errs, os.Link(file, d.name(fmt.Sprintf("b%02d", n), 200)))
	}
	for n := range short {
		errs = append(errs, os.Link(file, d.name(fmt.Sprintf("c%02d", n), 3)))
	}
	for n := ofPage + 1; n < 2*ofPage; n++ {
		errs = append(errs, os.Remove(d.name(fmt.Sprintf("b%02d", n), 200)))
	}
	for n := 0; n < short; n += 2 {
		errs = append(errs, os.Remove(d.name(fmt.Sprintf("c%02d", n), 3)))
	}
	return d, errors.Join(errs...)
}

// The name of the second page gets a place in the third one. So the second page is to be removed,
// and the first one would be the neighbor of the third: it cannot be read. By then the third page
// has more changes than one lock has room for.
func renamesGivenUp(t *testing.T, s system) {
	whole := newDevice(t, vmtest.Device(t, "disk0"))
	bad := deviceNamed(t, "bad", whole.disk)
	bad.become(fmt.Sprintf("0 %d error", bad.sectors))
	t.Cleanup(func() { whole.become(whole.working()) }) // else it cannot be removed
	v := s.make(t, plan{disk: whole.node(), blocks: 16384})
	one := filepath.Join(v.dir, "one")
	if err := os.WriteFile(one, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// If each loses a lock, none is left.
	const directories = 240
	var all []threePages
	for n := range directories {
		d, err := makeThreePages(filepath.Join(v.dir, fmt.Sprint("dir", n)), one)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	want := v.take()
	v.unmount()
	v.mount("errors=continue")
	for _, d := range all {
		if _, err := os.Stat(d.second()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(d.third()); err != nil {
			t.Fatal(err)
		}
	}
	whole.become(whole.unreading(bad))
	// By another process: this one could not end while a thread of it waits in the kernel for ever.
	var script strings.Builder
	for _, d := range all {
		fmt.Fprintf(&script, "mv %s %s && exit 1\n", d.second(), d.renamed())
	}
	renames := exec.Command("sh")
	var said bytes.Buffer
	renames.Stderr = &said
	renames.Stdin = strings.NewReader(script.String() + "exit 0\n")
	ended := inThread(renames.Run)
	if !await(func() bool { return len(ended) > 0 }) {
		t.Fatal("locks of transactions that JFS gave up are not free: the next one waits")
	}
	whole.become(whole.working())
	if err := <-ended; err != nil {
		t.Fatalf("a rename that cannot read a page succeeds: %v", err)
	}
	if n := strings.Count(said.String(), "/output error") + strings.Count(said.String(), "I/O error"); n != directories {
		t.Fatalf("%d of %d renames returned EIO:\n%.1000s", n, directories, said.String())
	}
	frozen := inThread(func() error {
		return errors.Join(atomicfile.SyncFileSystem(v.dir), v.ioctl(fifreeze, nil), v.ioctl(fithaw, nil))
	})
	if !await(func() bool { return len(frozen) > 0 }) {
		t.Fatal("a freeze does not end")
	}
	if err := <-frozen; err != nil {
		t.Error(err)
	}
	dropCaches(t)
	if err := tree.Compare(want, v.take()); err != nil {
		t.Errorf("the memory has what was given up: %v", err)
	}
	v.unmount()
	// The disk keeps the error that JFS found, also after a recovery, and has no other.
	if v.tryMount() == nil {
		t.Fatal("a disk with an error was mounted")
	}
	if out, err := run("fsck.jfs", "-f", "-p", v.disk); err != nil && exitStatus(err) != 1 || strings.Contains(out, "errors") {
		t.Errorf("fsck.jfs: %v:\n%s", err, out)
	}
	v.mount()
	if err := tree.Compare(want, v.take()); err != nil {
		t.Errorf("the disk has what was given up: %v", err)
	}
	v.end(nil)
}
