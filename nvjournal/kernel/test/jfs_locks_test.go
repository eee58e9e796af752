package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/storm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// Two inodes are in one page. One is synced, and the commit of its transaction waits for the
// disk: the page is logged, and its lock released. Now the other inode is changed and synced.
// That transaction must not wait for the first, and must log the page again. The power fails
// when both syncs have returned.
func jfsSharedPage(t *testing.T, s system) {
	if !delays(t) {
		return
	}
	d := newDevice(t, vmtest.Device(t, "disk0"))
	v := s.make(t, plan{disk: d.node(), blocks: 8192})
	files := v.neighbours(2)
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	waits := traced(t, "events/jfsnvj/jfsnvj_page_wait", "")
	d.become(d.delaying(0, 0, untilReplaced))
	defer d.become(d.working())

	synced := make(chan error, 2)
	change := func(file *os.File) {
		t.Helper()
		if err := file.Chmod(0o600); err != nil {
			t.Fatal(err)
		}
		go func() { synced <- file.Sync() }()
	}
	change(files[0])
	flushes := func() bool { return d.delayed().flushes > 0 }
	if !await(func() bool { return flushes() || len(synced) > 0 }) || len(synced) > 0 {
		t.Fatal("the commit of the first transaction does not wait for the disk")
	}
	before := v.statistics()["handles"]
	change(files[1])
	if !await(func() bool { return waits() != "" || v.statistics()["handles"] > before }) {
		t.Fatal("the second transaction does nothing")
	}
	if said := waits(); said != "" {
		t.Errorf("the second transaction waited for the page of the first, which is logged:\n%s", said)
	}
	d.become(d.working())
	if err := errors.Join(<-synced, <-synced, files[0].Close(), files[1].Close()); err != nil {
		t.Fatal(err)
	}
	u := v.uncleanAsItIs()
	v.unmount()
	u.restore(t)
	v.mount()
	for n, file := range files {
		if info, err := os.Stat(file.Name()); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("file %d of the two that were synced is %v, %v", n+1, info, err)
		}
	}
	v.end(nil)
}

// All inodes of a page are changed and synced by a thread each, until transactions have waited
// for another one's lock of the page. If one used the lock of another, nobody would log its
// change. The power fails when all syncs have returned.
func jfsContendedPage(t *testing.T, s system) {
	v := s.make(t, plan{blocks: 8192})
	files := v.neighbours(inodesOfPage)
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	waits := traced(t, "events/jfsnvj/jfsnvj_page_wait", "")
	const wanted, most = 50, 20000
	modes := make([]os.FileMode, len(files))
	var enough atomic.Bool
	ended := make(chan error, len(files))
	for n, file := range files {
		change := func() error {
			for change := 0; change < most && !enough.Load(); change++ {
				mode := os.FileMode(0o400 | change%0o100)
				if err := errors.Join(file.Chmod(mode), file.Sync()); err != nil {
					return err
				}
				modes[n] = mode
				if n == 0 && change%100 == 0 {
					enough.Store(strings.Count(waits(), "\n") >= wanted)
				}
			}
			return file.Close()
		}
		go func() { ended <- change() }()
	}
	for range files {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	if count := strings.Count(waits(), "\n"); count < wanted {
		t.Errorf("transactions waited %d times for the page, want at least %d", count, wanted)
	}
	u := v.uncleanAsItIs()
	v.unmount()
	u.restore(t)
	v.mount()
	for n, file := range files {
		if info, err := os.Stat(file.Name()); err != nil || info.Mode().Perm() != modes[n] {
			t.Errorf("file %d is %v, %v; want the mode %v, which was synced", n+1, info, err, modes[n])
		}
	}
	v.end(nil)
}

// inodesOfPage is how many inodes of 512 bytes a page of 4 KiB has.
const inodesOfPage = 8

// neighbours are so many files whose inodes are in one page, in which no other inode changes.
func (v *volume) neighbours(count int) []*os.File {
	v.t.Helper()
	paths := map[uint64][]string{}
	for n := range 4 * inodesOfPage {
		path := filepath.Join(v.dir, fmt.Sprint("file", n))
		var stat unix.Stat_t
		if err := errors.Join(os.WriteFile(path, nil, 0o644), unix.Stat(path, &stat)); err != nil {
			v.t.Fatal(err)
		}
		page := stat.Ino / inodesOfPage
		paths[page] = append(paths[page], path)
		if page == 0 || len(paths[page]) < count { // the root directory is in the first one
			continue
		}
		var files []*os.File
		for _, path := range paths[page] {
			file, err := os.Open(path)
			if err != nil {
				v.t.Fatal(err)
			}
			v.t.Cleanup(func() { _ = file.Close() })
			files = append(files, file)
		}
		return files
	}
	v.t.Fatalf("no %d files have inodes in one page", count)
	return nil
}

// traced switches a tracepoint on, with a filter if there is one, until the test ends. The
// function returns what was traced.
func traced(t *testing.T, event, filter string) (said func() string) {
	t.Helper()
	const root = "/sys/kernel/tracing"
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	write("trace", "")
	if filter != "" {
		write(filepath.Join(event, "filter"), filter)
	}
	write(filepath.Join(event, "enable"), "1")
	t.Cleanup(func() { _ = os.WriteFile(filepath.Join(root, event, "enable"), []byte("0"), 0) })
	return func() string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(root, "trace"))
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, filepath.Base(event)+":") {
				said += line
			}
		}
		return said
	}
}

// fewLocks is the parameter of the module for as few locks as it accepts.
const fewLocks = "nTxLock=256"

// loadJFS loads the module again, with these parameters.
func loadJFS(t *testing.T, parameters ...string) {
	t.Helper()
	must(t, "rmmod", "jfsnvj")
	must(t, "modprobe", append([]string{"jfsnvj"}, parameters...)...)
}

// As TestGuestJFSKilled, while locks are few.
func TestGuestJFSKilledWithFewLocks(t *testing.T) {
	vmtest.Long(t)
	killed(t, jfsSystems(t, jfsFew), crashes(t, 1, 25), bootKilledJFS)
}

// The module has the fewest locks and transactions that it accepts. So locks run low all the
// time: a transaction frees each lock at once, and threads wait for free ones.
func jfsFewLocks(t *testing.T, s system) {
	needsKprobes(t)
	seen := logMark(t)
	loadJFS(t, fewLocks)
	defer loadJFS(t)
	if log := logSince(t, seen); !strings.Contains(log, "nTxBlock = 32, nTxLock = 256") {
		t.Fatalf("the module has other numbers:\n%s", log)
	}
	const probe = "/sys/kernel/tracing/kprobe_events"
	// The kernel looks for the variable in the newest module first, and JFS has it, too.
	if err := os.WriteFile(probe, []byte("p:jfs_few_locks jfsnvj:txEnd low=@jfs_tlocks_low:s32"), 0); err != nil {
		why, _ := os.ReadFile("/sys/kernel/tracing/error_log")
		t.Fatalf("%v: %s", err, why)
	}
	defer func() { _ = os.WriteFile(probe, []byte("-:jfs_few_locks"), 0) }()
	t.Run("load", func(t *testing.T) {
		low := traced(t, "events/kprobes/jfs_few_locks", "low != 0")
		v := s.make(t, plan{blocks: 16384})
		check := jfsScripted(t, v.dir, 3, scaled(150, 1500))
		const mostRounds = 10
		rounds, ends := 0, 0
		for ; rounds < mostRounds && (ends == 0 || rounds < scaled(1, mostRounds)); rounds++ {
			if _, err := storm.Run(t.Context(), filepath.Join(v.dir, fmt.Sprint("storm", rounds)), jfsStorm(8, scaled(100, 1000))); err != nil {
				t.Fatal(err)
			}
			ends = strings.Count(low(), "\n")
		}
		if ends == 0 {
			t.Error("locks never ran low")
		}
		t.Logf("%d rounds; at least %d transactions ended while locks were low", rounds, ends)
		check(v.dir)
		u := v.unclean()
		v.unmount()
		u.restore(t)
		v.mount()
		check(v.dir)
		v.end(check)
	})
}
