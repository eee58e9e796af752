package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/vm/vmtest"
)

// As jfsLostFrees, for ext4: a file is removed from a full disk, and the commit of that fails.
// ext4 frees its blocks when a transaction is committed, which this one never is.
func lostFrees(t *testing.T, s system) {
	if !delays(t) {
		return
	}
	for _, options := range []string{"errors=remount-ro,nodiscard", "errors=continue,nodiscard", "errors=continue,discard"} {
		t.Run(options, func(t *testing.T) { loseFreesOfExt4(t, s, options) })
	}
}

func loseFreesOfExt4(t *testing.T, s system, options string) {
	d := newDevice(t, vmtest.Device(t, "disk0"))
	bad := deviceNamed(t, "bad", d.disk)
	v := s.make(t, plan{disk: d.node(), blocks: 8192, options: []string{options}})
	open := create(t, filepath.Join(v.dir, "open"))
	overwrite := func(block int) error {
		_, err := open.WriteAt(bytes.Repeat([]byte{0xff}, 4096), int64(block)*4096)
		return err
	}
	if err := errors.Join(overwrite(0), open.Sync()); err != nil {
		t.Fatal(err)
	}
	blocks := v.fillWithFile("removed")
	v.carryHome()
	before := discarded(t, v.disk)
	bad.become(bad.failing())
	d.become(d.onlyFlushes(bad))
	seen := logMark(t)
	// A commit flushes the disk only if data was written since the last flush.
	if err := errors.Join(overwrite(0), unix.SyncFileRange(int(open.Fd()), 0, 4096, unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER),
		os.Remove(filepath.Join(v.dir, "removed"))); err != nil {
		t.Fatal(err)
	}
	if err := open.Sync(); err == nil {
		t.Error("a sync whose flush fails succeeds")
	}
	if !await(func() bool { return strings.Contains(strings.ToLower(logSince(t, seen)), "journal is aborted") }) {
		t.Fatalf("the commit of the removal does not fail:\n%s", logSince(t, seen))
	}
	// Threads of ext4 would free and discard blocks now. If this is too short, the test finds less.
	for range 20 {
		for n := range 64 {
			_ = overwrite(1 + n)
		}
		_ = open.Sync()
		time.Sleep(100 * time.Millisecond)
	}
	_ = open.Close()
	d.become(d.working())
	v.unmount()
	if after := discarded(t, v.disk); after != before {
		t.Errorf("%d sectors were discarded after the abort", after-before)
	}
	v.mount()
	v.hasNumbered("removed", blocks)
	v.unmount()
	// ext4 has noted the error in the superblock.
	if out, err := run("e2fsck", "-fy", v.disk); err != nil && !strings.Contains(out, "FILE SYSTEM WAS MODIFIED") {
		t.Fatalf("e2fsck: %v: %s", err, out)
	}
	v.mount()
	v.end(nil)
}

// onlyFlushes is a table with which flushes go to another device, and reads and writes do not.
func (d *device) onlyFlushes(to *device) string {
	return fmt.Sprintf("0 %d delay %[2]s 0 0 %[2]s 0 0 %s 0 0", d.sectors, d.disk, to.node())
}

// onlyWrites is the same with writes, which are delayed.
func (d *device) onlyWrites(to *device, delay time.Duration) string {
	return fmt.Sprintf("0 %d delay %[2]s 0 0 %[3]s 0 %[4]d %[2]s 0 0", d.sectors, d.disk, to.node(), delay.Milliseconds())
}

// hasNumbered checks that a file that fillWithFile made is there, and has its content.
func (v *volume) hasNumbered(name string, blocks int) {
	v.t.Helper()
	file, err := os.ReadFile(filepath.Join(v.dir, name))
	if err != nil || len(file) != blocks*4096 {
		v.t.Fatalf("the file whose removal was not committed has %d bytes, %d before: %v", len(file), blocks*4096, err)
	}
	wrong := 0
	for n := range blocks {
		if !bytes.Equal(file[n*4096:(n+1)*4096], numbered(n)) {
			wrong++
		}
	}
	if wrong > 0 {
		v.t.Errorf("%d of %d blocks of the file whose removal was not committed have other content", wrong, blocks)
	}
}
