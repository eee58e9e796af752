package containertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

// A process that neither its parent nor its command line tells apart is found by its cgroup.
func TestAProcessThatIsLeftInACgroupIsEnded(t *testing.T) {
	needs.Root(t)
	roots, _ := filepath.Glob("/sys/fs/cgroup/blkio")
	if len(roots) == 0 {
		roots = []string{"/sys/fs/cgroup"}
	}
	dir := filepath.Join(roots[0], workshopPrefix+strconv.Itoa(os.Getpid())+"-left")
	inner := filepath.Join(dir, "pods", "pod")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeCgroup(dir) })
	left := exec.Command("sleep", "60")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }()
	t.Cleanup(func() { _ = left.Process.Kill() })
	if err := os.WriteFile(filepath.Join(inner, "cgroup.procs"), []byte(strconv.Itoa(left.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	removeCgroup(dir)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Fatalf("the cgroup is still there: %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the process ended by itself")
	}
}
