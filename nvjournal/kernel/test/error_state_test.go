package test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ext4 finds an error, and only the region has the superblock that says so when the host fails.
// The mount deletes the file that was open without a name. The disk still has the error after the
// umount, so that e2fsck checks it.
func errorState(t *testing.T, s system) {
	for _, feature := range []string{"^orphan_file", "orphan_file"} {
		t.Run(feature, func(t *testing.T) { errorStateWith(t, s, feature) })
	}
}

func errorStateWith(t *testing.T, s system, feature string) {
	p := smallPlan(s)
	p.features = []string{"-O", feature}
	v := s.make(t, p)
	attributes := filepath.Join("/sys/fs", v.fstype(), filepath.Base(v.disk))
	setParameters(t, filepath.Join(attributes, "trigger_fs_error"), "of a test")
	if !await(func() bool {
		count, err := os.ReadFile(filepath.Join(attributes, "errors_count"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(count)) == "1"
	}) {
		t.Fatal("the error is not counted")
	}
	deleted := create(t, filepath.Join(v.dir, "deleted"))
	_, err := deleted.WriteAt(make([]byte, 4096), 0)
	if err := errors.Join(err, deleted.Sync(), os.Remove(deleted.Name()), v.syncDirectory()); err != nil {
		t.Fatal(err)
	}
	crash := v.uncleanAsItIs()
	_ = deleted.Close()
	v.unmount()
	const place, hasErrors = 1024 + 58, 2 // s_state of the superblock, EXT4_ERROR_FS
	if state := binary.LittleEndian.Uint16(crash.disk.bytes[place:]); state&hasErrors != 0 {
		t.Fatalf("the state of the disk is %#x before recovery: it has the error already", state)
	}
	for _, flags := range []uintptr{unix.MS_RDONLY, 0} {
		crash.restore(t)
		seen := logMark(t)
		if err := unix.Mount(v.disk, v.dir, v.fstype(), flags, v.data()); err != nil {
			t.Fatalf("a mount with flags %d: %v; the kernel says:\n%s", flags, err, logSince(t, seen))
		}
		v.mounted = true
		for _, want := range []string{"1 orphan inode deleted", "mounting fs with errors"} {
			if log := logSince(t, seen); !strings.Contains(log, want) {
				t.Errorf("the kernel does not say %q at the mount with flags %d:\n%s", want, flags, log)
			}
		}
		v.unmount()
		if state := binary.LittleEndian.Uint16(takeImage(t, v.disk, 0, 4096).bytes[place:]); state&hasErrors == 0 {
			t.Errorf("the state of the disk is %#x, without the error, after a mount with flags %d", state, flags)
		}
	}
	v.mount()
	v.endAfterErrors(nil)
}
