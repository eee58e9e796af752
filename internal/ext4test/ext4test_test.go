package ext4test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/needs"
)

// As while a container of another test starts, which has a copy of each mount.
func TestAFileSystemIsRemovedWhileAnotherMountNamespaceHasIt(t *testing.T) {
	var used FileSystem
	other := exec.Command(needs.Tool(t, "cat")) // ends with its input
	other.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	input, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = input.Close() }()
	t.Run("use", func(t *testing.T) {
		used = New(t, Options{ExternalJournal: true})
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", other.Process.Pid))
		if err != nil || !strings.Contains(string(mounts), used.Dir) {
			t.Errorf("the other process has no copy of the mount: %v", err)
		}
	})
	if other.Process == nil {
		t.SkipNow() // for the reason that is in the log
	}
	for _, loop := range []blockdev.Loop{used.Disk, used.Journal} {
		if file, err := loop.BackingFile(); err == nil && file == loop.File {
			t.Errorf("%s is still attached", loop.Name)
		}
	}
	if err := input.Close(); err != nil {
		t.Error(err)
	}
	if err := other.Wait(); err != nil {
		t.Errorf("the other process ended: %v", err)
	}
}
