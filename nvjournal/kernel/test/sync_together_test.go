package test

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// A file is synced whose data is on the disk, but not flushed, and in whose transaction nothing was
// logged. So no commit flushes the disk for it. When that sync knows this, and before it flushes the
// disk itself, another thread begins a commit of the transaction, and waits in its flush. The sync
// must not rely on that flush before it has ended.
func syncsTogether(t *testing.T, s system) {
	needsKprobes(t)
	if !delays(t) {
		return
	}
	d := newDevice(t, vmtest.Device(t, "disk0"))
	v := s.make(t, plan{disk: d.node()})
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file, other, third := create(t, filepath.Join(v.dir, "file")), create(t, filepath.Join(v.dir, "other")), create(t, filepath.Join(v.dir, "third"))
	write := func(with byte) error {
		_, err := file.WriteAt(bytes.Repeat([]byte{with}, 4096), 0)
		return err
	}
	ok(errors.Join(write(1), file.Sync(), atomicfile.SyncFileSystem(v.dir)))
	lines := func() uint64 { return v.statistics()["logged_lines"] }
	// ext4 sets the file's times when it is asked for blocks that the file has. At the same time of the
	// clock that changes nothing, so its handle logs nothing. But ext4 notes the transaction of that
	// handle as the one that a sync needs. The clock must not tick between both calls.
	at := time.Now()
	change := func() error {
		spec := unix.NsecToTimespec(at.UnixNano())
		return errors.Join(unix.ClockSettime(unix.CLOCK_REALTIME, &spec), unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 4096))
	}
	if !await(func() bool {
		ok(errors.Join(write(2), change(), third.Chmod(0o600), third.Sync()))
		before := lines()
		ok(change())
		return lines() == before
	}) {
		t.Fatal("each change is logged")
	}
	before := lines()
	ok(unix.SyncFileRange(int(file.Fd()), 0, 4096, unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER))
	synced, committed := make(chan error, 1), make(chan error, 1)
	// The first call asks whether all is committed already, the second one is after the commit.
	release := heldUp(t, "ext4nvj:nvj_committed", 1, func() { synced <- file.Sync() })
	if after := lines(); after != before {
		t.Errorf("the sync has logged %d lines", after-before)
	}
	d.become(d.delaying(0, 0, untilReplaced))
	defer d.become(d.working())
	ok(other.Chmod(0o600))
	go func() { committed <- other.Sync() }()
	if !await(func() bool { return d.delayed().flushes > 0 || len(committed) > 0 }) || len(committed) > 0 {
		t.Fatal("the commit does not wait for the disk")
	}
	release()
	if !await(func() bool { return d.delayed().flushes > 1 || len(synced) > 0 }) {
		t.Error("the sync neither flushes the disk nor returns")
	}
	if len(synced) > 0 {
		t.Error("the sync has returned before a flush has ended")
	}
	d.become(d.working())
	ok(errors.Join(<-synced, <-committed, file.Close(), other.Close(), third.Close()))
	v.end(nil)
}
