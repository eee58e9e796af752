package volume

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A test that is killed leaves an attached volume: the next run of the tests removes it.
func TestWhatAKilledTestLeftIsRemoved(t *testing.T) {
	living := newRig(t)
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	left := makeHome(t, living.tree, ended.Process.Pid)
	left.open(filepath.Join(left.home, "pool"))
	name := left.name("db")
	left.create(name, CreateOptions{})
	left.attach(name, AttachOptions{})
	if len(left.host()) < 3 {
		t.Fatalf("the volume has only %q", left.host())
	}
	kept := living.name("db")
	living.create(kept, CreateOptions{})
	living.attach(kept, AttachOptions{})

	recoverKilled(t, living.tree)
	if found := left.host(); len(found) != 0 {
		t.Errorf("still there: %q", found)
	}
	if _, err := os.Lstat(left.home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
	living.wantWhole(kept)
}
