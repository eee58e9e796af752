package ext4

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// tears makes an e2fsck that writes half a superblock and then ends as end
// specifies.
func tears(t *testing.T, end string) {
	t.Helper()
	const script = `#!/bin/sh
for device; do :; done
printf '\0\0' | dd of="$device" bs=1 seek=$((1024 + %d)) conv=notrunc status=none
%s
`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "e2fsck"), fmt.Appendf(nil, script, atFreeBlocksLow, end), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestAPartiallyWrittenSuperblockIsRestored(t *testing.T) {
	for _, end := range []string{"kill -9 $$", "exit 8", "exit 0"} {
		t.Run(end, func(t *testing.T) {
			path := os.Getenv("PATH")
			o := offlineImage(t)
			o.Kept = filepath.Join(t.TempDir(), "superblock")
			before, err := ReadSuperblock(o.Device)
			if err != nil {
				t.Fatal(err)
			}
			tears(t, end)
			_, _, err = o.Check(t.Context(), true)
			if end != "exit 0" && err == nil {
				t.Error("the tool's end is no error")
			}
			if after, err := ReadSuperblock(o.Device); err != nil || after != before {
				t.Errorf("%+v, %v; want %+v", after, err, before)
			}
			if was, err := o.PutBack(); err != nil || !was {
				t.Errorf("%v, %v: not known as interrupted", was, err)
			}
			t.Setenv("PATH", path)
			if _, _, err := o.Check(t.Context(), true); err != nil {
				t.Error(err)
			}
			if was, err := o.PutBack(); err != nil || was {
				t.Errorf("%v, %v: still known as interrupted", was, err)
			}
		})
	}
}

func TestAnotherFileSystemsSuperblockIsNotRestored(t *testing.T) {
	o, other := offlineImage(t), offlineImage(t)
	o.Kept = filepath.Join(t.TempDir(), "superblock")
	other.Kept = o.Kept
	if err := other.keep(); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(o.Device, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.WriteAt([]byte{1, 2}, superblockOffset+atFreeBlocksLow); err != nil {
		t.Fatal(err)
	}
	if _, err := o.PutBack(); err != nil {
		t.Error(err)
	}
	if _, err := ReadSuperblock(o.Device); err == nil {
		t.Error("another file system's superblock was restored")
	}
	// A damaged superblock must not be saved.
	if err := o.keep(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(o.Kept); err == nil {
		t.Error("a damaged superblock was saved")
	}
	if err := os.WriteFile(o.Kept, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := o.PutBack(); err == nil {
		t.Error("half a copy was accepted")
	}
}
