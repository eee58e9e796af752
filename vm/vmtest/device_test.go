package vmtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/vm/vmtest"
)

// The fixture of tests of attribution and control: a disk with ext4 under BFQ
// in a guest with the io controller of cgroup v2.
func TestDiskWithExt4UnderBFQ(t *testing.T) {
	vmtest.InGuest(t, vmtest.Config{Disks: []string{"128M,bps=40M", "64M"}, Modules: "ext4,bfq", Give: []string{"mke2fs"}}, func(t *testing.T) {
		disk := vmtest.Device(t, "disk0")
		queue := filepath.Join("/sys/block", filepath.Base(disk), "queue/scheduler")
		if err := os.WriteFile(queue, []byte("bfq"), 0); err != nil {
			t.Fatal(err)
		}
		mount := t.TempDir()
		run(t, "mke2fs", "-q", "-t", "ext4", disk)
		run(t, "mount", "-t", "ext4", disk, mount)
		t.Cleanup(func() { run(t, "umount", mount) })
		if err := os.WriteFile(filepath.Join(mount, "file"), []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
		controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.subtree_control")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(controllers), "io") {
			t.Errorf("no io controller in %q", controllers)
		}
		group := filepath.Join("/sys/fs/cgroup", "a")
		if err := os.Mkdir(group, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(group) })
		if err := os.WriteFile(filepath.Join(group, "io.bfq.weight"), []byte("300"), 0); err != nil {
			t.Error(err)
		}
	})
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
