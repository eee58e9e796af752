package test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ext4 finds an error, and only the region has the superblock that says so when the host fails.
// The disk still says so after a mount and an umount, so that e2fsck checks it.
func errorState(t *testing.T, s system) {
	v := s.make(t, smallPlan(s))
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
	if err := errors.Join(os.Mkdir(filepath.Join(v.dir, "directory"), 0o755), v.syncDirectory()); err != nil {
		t.Fatal(err)
	}
	crash := v.uncleanAsItIs()
	v.unmount()
	crash.restore(t)
	v.mount()
	v.unmount()
	const place, hasErrors = 1024 + 58, 2 // s_state of the superblock, EXT4_ERROR_FS
	if state := binary.LittleEndian.Uint16(takeImage(t, v.disk, 0, 4096).bytes[place:]); state&hasErrors == 0 {
		t.Errorf("the state of the disk is %#x, without the error", state)
	}
	v.mount()
	v.endAfterErrors(nil)
}
