package test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/fsx"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// smallestJournal is the size of the smallest accepted region, in bytes: an
// operation may ask for a quarter of a ring.
func (s system) smallestJournal() int { return (2 << 20) * max(1, s.partitions) }

// churn fills the journal: attributes of thousands of random bytes, again and
// again.
func churn(dir string, count int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	random := rand.NewChaCha8([32]byte{})
	value := make([]byte, 3500)
	for n := range count {
		path := filepath.Join(dir, fmt.Sprintf("churn%d", n%50))
		if n < 50 {
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				return err
			}
		}
		_, _ = random.Read(value)
		if err := unix.Setxattr(path, "user.churn", value, 0); err != nil {
			return err
		}
	}
	return nil
}

// statistics are the journal's own.
func (v *volume) statistics() map[string]uint64 {
	v.t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc/fs", v.fstype(), filepath.Base(v.disk), "nvjournal"))
	if err != nil {
		v.t.Fatal(err)
	}
	numbers := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 {
			if n, err := strconv.ParseUint(f[1], 10, 64); err == nil {
				numbers[f[0]] = n
			}
		}
	}
	return numbers
}

// The journal is always full, and wraps around several times.
func smallJournal(t *testing.T, s system) {
	v := s.make(t, plan{size: s.smallestJournal(), journalMB: 4})
	var check func(string)
	var last string
	const mostRounds = 8
	for round := range mostRounds {
		last = fmt.Sprintf("round%d", round)
		dir := filepath.Join(v.dir, last)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		churned := make(chan error, 1)
		go func() { churned <- churn(dir, scaled(2600, 10000)) }()
		check = scripted(t, dir, 3, scaled(300, 2000))
		stormed(t, dir, 4, scaled(200, 2000))
		exercised(t, dir, 2, 50, fsx.Options{})
		if err := <-churned; err != nil {
			t.Fatal(err)
		}
		check(dir)
		if !s.ours() || s != one && scaled(0, 1) == 0 {
			break
		}
		n := v.statistics()
		if n["logged_lines"] > uint64(scaled(1, 4))*n["ring_lines"]*uint64(s.partitions) && n["checkpoints"] > 1 {
			t.Logf("%d lines in rings of %d, %d checkpoints, %d handles waited", n["logged_lines"], n["ring_lines"], n["checkpoints"], n["start_waits"])
			break
		}
		if round == mostRounds-1 {
			t.Errorf("the journal did not go round: %v", n)
		}
	}
	v.end(nil)
}

// device is a disk of the device mapper whose writes can be made to fail.
type device struct {
	t       *testing.T
	name    string
	sectors int
	disk    string
}

func newDevice(t *testing.T, disk string) *device {
	t.Helper()
	return deviceNamed(t, "flaky", disk)
}

func deviceNamed(t *testing.T, name, disk string) *device {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(disk), "size"))
	if err != nil {
		t.Fatal(err)
	}
	sectors, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	d := &device{t: t, name: name, sectors: sectors, disk: disk}
	must(t, "dmsetup", "create", d.name, "--noudevsync", "--noudevrules", "--table", d.working())
	t.Cleanup(func() { _, _ = run("dmsetup", "remove", "--force", "--noudevsync", "--noudevrules", d.name) })
	return d
}

func (d *device) working() string { return fmt.Sprintf("0 %d linear %s 0", d.sectors, d.disk) }

// failing is a table with which each write fails and reads do not.
func (d *device) failing() string {
	return fmt.Sprintf("0 %d flakey %s 0 0 60 1 error_writes", d.sectors, d.disk)
}

// delays says whether this kernel has a device that delays I/O. If not, the test logs it.
func delays(t *testing.T) bool {
	t.Helper()
	has := strings.Contains(must(t, "dmsetup", "targets"), "delay")
	if !has {
		t.Log("this kernel has no device that delays reads, writes and flushes")
	}
	return has
}

// untilReplaced delays until the device gets another table.
const untilReplaced = time.Hour

// delaying is a table with which these take so long.
func (d *device) delaying(reads, writes, flushes time.Duration) string {
	return fmt.Sprintf("0 %d delay %[2]s 0 %[3]d %[2]s 0 %[4]d %[2]s 0 %[5]d", d.sectors, d.disk,
		reads.Milliseconds(), writes.Milliseconds(), flushes.Milliseconds())
}

// delayed is how many wait in a device that delays them.
type delayed struct{ reads, writes, flushes int }

func (d *device) delayed() (now delayed) {
	d.t.Helper()
	status := must(d.t, "dmsetup", "status", d.name)
	// Another target has other fields, and nothing waits there.
	_, _ = fmt.Sscanf(status, "0 %d delay %d %d %d", new(int), &now.reads, &now.writes, &now.flushes)
	return now
}

// node is the device's own path.
func (d *device) node() string {
	d.t.Helper()
	return filepath.Join("/dev", strings.TrimSpace(must(d.t, "dmsetup", "info", "-c", "--noheadings", "-o", "blkdevname", d.name)))
}

func (d *device) become(table string) {
	d.t.Helper()
	lines := filepath.Join(d.t.TempDir(), "table")
	if err := os.WriteFile(lines, []byte(table), 0o600); err != nil {
		d.t.Fatal(err)
	}
	must(d.t, "dmsetup", "suspend", "--nolockfs", "--noudevsync", d.name)
	must(d.t, "dmsetup", "load", d.name, lines)
	must(d.t, "dmsetup", "resume", "--noudevsync", d.name)
}

// The disk's writes fail. The file system accepts no more changes. When the disk
// works again, all that was reported as permanent exists.
func writeErrors(t *testing.T, s system) {
	// With barriers, the first flush of the disk fails, which a commit requests;
	// without them, the first write of a block to its home.
	readable := staysReadable(t)
	for _, option := range []string{"barrier", "nobarrier"} {
		t.Run(option, func(t *testing.T) { writeErrorsWith(t, s, option, readable) })
	}
}

// staysReadable reports whether this kernel's own ext4 can be read after an error:
// earlier ones make it read-only then, later ones shut it down.
func staysReadable(t *testing.T) bool {
	v := stock.make(t, plan{disk: vmtest.Device(t, "disk1"), options: []string{"errors=remount-ro"}})
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(v.disk), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("an error on purpose"), 0); err != nil {
		t.Fatal(err)
	}
	_, err := unix.Getxattr(v.dir, "user.none", nil)
	v.unmount()
	if !errors.Is(err, unix.EIO) && !errors.Is(err, unix.ENODATA) {
		t.Fatalf("an attribute, after an error: %v", err)
	}
	return errors.Is(err, unix.ENODATA)
}

func writeErrorsWith(t *testing.T, s system, option string, readable bool) {
	d := newDevice(t, vmtest.Device(t, "disk0"))
	// The name of the node itself, which the kernel uses.
	node := must(t, "dmsetup", "info", "-c", "--noheadings", "-o", "blkdevname", d.name)
	v := s.make(t, plan{disk: filepath.Join("/dev", strings.TrimSpace(node)), size: s.smallestJournal(), options: []string{"errors=remount-ro", option}})
	check := scripted(t, v.dir, 2, scaled(200, 2000))
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	d.become(d.failing())
	told, err := directoriesUntilError(v.dir, 0)
	if !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EIO) {
		t.Fatalf("after %d directories: %v", told, err)
	}
	// Now it accepts no change, and can be read if ext4 can.
	refused := func(err error) bool {
		return errors.Is(err, unix.EROFS) || !readable && errors.Is(err, unix.EIO)
	}
	if !await(func() bool {
		err = os.Mkdir(filepath.Join(v.dir, "late"), 0o755)
		return refused(err)
	}) {
		t.Errorf("after the errors, mkdir: %v", err)
	}
	if readable {
		check(v.dir)
	}
	v.unmount()
	d.become(d.working())
	v.mount()
	check(v.dir)
	hasDirectories(t, v.dir, told)
	t.Logf("%d directories were synced before the error", told)
	v.endAfterErrors(check)
}

// syncedDirectories makes directories with the numbers first to end-1, each permanent
// before the next.
func syncedDirectories(dir string, first, end int) error {
	parent := filepath.Join(dir, "told")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	file, err := os.Open(parent)
	if err != nil {
		return err
	}
	defer file.Close()
	for n := first; n < end; n++ {
		if err := errors.Join(os.Mkdir(filepath.Join(parent, fmt.Sprint(n)), 0o755), file.Sync()); err != nil {
			return err
		}
	}
	return nil
}

// directoriesUntilError makes directories, from a number on, each permanent before the
// next, and returns the number of the one at the first error.
func directoriesUntilError(dir string, first int) (told int, err error) {
	for told = first; told < 200000; told++ {
		if err := syncedDirectories(dir, told, told+1); err != nil {
			return told, err
		}
		if err := churn(filepath.Join(dir, "churn"), 60); err != nil {
			return told + 1, err
		}
	}
	return told, errors.New("no error came")
}

// unload: nothing uses the module any more, and it is removed without messages.
func unload(t *testing.T, s system) {
	v := s.make(t, plan{})
	v.stormed(3, 100)
	if out, err := run("rmmod", v.fstype()); err == nil {
		t.Errorf("a module that is in use was unloaded: %s", out)
	}
	v.end(nil)
	seen := logMark(t)
	must(t, "rmmod", v.fstype())
	if said := logSince(t, seen); strings.Contains(said, "WARNING") || strings.Contains(said, "BUG") || strings.Contains(said, "left") {
		t.Errorf("unloading: %s", said)
	}
	leaks(t)
	if err := v.tryMount(); !errors.Is(err, unix.ENODEV) {
		t.Errorf("mounting without the module: %v", err)
	}
	reloads(t, v.fstype())
	must(t, "modprobe", v.fstype())
	v.mount()
	v.end(nil)
}

// reloads loads a module and removes it, again and again and without a pause: nothing
// of it is left that a kernel thread would remove later.
func reloads(t *testing.T, name string) {
	t.Helper()
	// "insmod PATH", of the module itself in the last line.
	loads := strings.Fields(must(t, "modprobe", "--show-depends", name))
	file, err := os.Open(loads[len(loads)-1])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for n := range 20 {
		if err := unix.FinitModule(int(file.Fd()), "", 0); err != nil {
			t.Fatalf("loading it the time %d: %v", n+2, err)
		}
		if err := unix.DeleteModule(name, unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
	}
}

// leaks fails the test if a kernel with a leak detector reports lost memory. So
// memory that the module has lost is found after its removal. Memory counts if it
// is some seconds old, and was found twice.
func leaks(t *testing.T) {
	t.Helper()
	const report = "/sys/kernel/debug/kmemleak"
	if _, err := os.Stat(report); err != nil {
		return
	}
	for range 2 {
		time.Sleep(6 * time.Second)
		if err := os.WriteFile(report, []byte("scan"), 0); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 0 {
		t.Errorf("memory was left:\n%s", text)
	}
}
