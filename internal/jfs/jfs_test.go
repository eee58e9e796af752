package jfs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

const (
	testUUID  = "01234567-89ab-4def-8123-456789abcdef"
	testBytes = 16 << 20
)

// image makes a JFS in a file.
func image(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{mkfs, fsck, tune} {
		needs.Tool(t, tool)
	}
	path := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, testBytes)); err != nil {
		t.Fatal(err)
	}
	if err := Make(context.Background(), path, MakeOptions{UUID: testUUID, LogBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	return path
}

// overwrite changes bytes of a file.
func overwrite(t *testing.T, path string, at int64, text []byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt(text, at)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestANewFileSystemIsClean(t *testing.T) {
	path := image(t)
	s, err := ReadSuperblock(path)
	if err != nil || s.UUID.String() != testUUID || !s.Clean || s.InMemory {
		t.Errorf("%+v, %v", s, err)
	}
	for _, repair := range []bool{false, true} {
		if report, corrected, err := (Offline{Device: path}).Check(context.Background(), repair); err != nil || corrected {
			t.Errorf("repair %v: corrected %v, %v: %s", repair, corrected, err, report)
		}
	}
}

// fsck.jfs -n finds damage and changes nothing; -a corrects what it can.
func TestDamageIsFound(t *testing.T) {
	path := image(t)
	const inodeTable = 0xb000 // of the aggregate, whose copy fsck.jfs takes
	overwrite(t, path, inodeTable, make([]byte, superblockBytes))
	damaged, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := (Offline{Device: path}).Check(context.Background(), false); !errors.Is(err, ErrDamaged) {
		t.Errorf("a check says %v", err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const atLogNumber = superblockOffset + 100 // of its own log in the superblock
	after[atLogNumber] = damaged[atLogNumber]
	if !bytes.Equal(after, damaged) {
		t.Error("a check without repair has changed the file system")
	}
	report, corrected, err := (Offline{Device: path}).Check(context.Background(), true)
	if err != nil || !corrected {
		t.Errorf("a repair: corrected %v, %v: %s", corrected, err, report)
	}
}

// The mark of jfsnvj.
func TestAMarkedFileSystemIsInMemory(t *testing.T) {
	path := image(t)
	const atCopy = 0xf000
	for _, at := range []int64{superblockOffset, atCopy} {
		overwrite(t, path, at+atVersion, []byte{1, 0, 0x56, 0x4e})
		overwrite(t, path, at+atMark, []byte(mark))
	}
	if s, err := ReadSuperblock(path); err != nil || !s.InMemory {
		t.Errorf("%+v, %v", s, err)
	}
	if _, _, err := (Offline{Device: path}).Check(context.Background(), true); err == nil {
		t.Error("fsck.jfs takes a marked file system")
	}
}

func TestOtherContentIsNoJFS(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zeros")
	for _, bytes := range []int64{0, testBytes} {
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, bytes)); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSuperblock(path); !errors.Is(err, ErrNotJFS) {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
}

func TestMissingToolsAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := CheckTools(); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
