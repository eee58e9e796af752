package vmtest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/vm/vmtest"
)

func TestRunsInTheGuestWithTheRequestedKernel(t *testing.T) {
	vmtest.InGuest(t, vmtest.Config{}, func(t *testing.T) {
		text, err := os.ReadFile("/proc/sys/kernel/osrelease")
		if err != nil {
			t.Fatal(err)
		}
		_, kernel, _ := strings.Cut(t.Name(), "/kernel-")
		if !strings.HasPrefix(string(text), kernel+".") {
			t.Errorf("kernel %s in %s", text, t.Name())
		}
		t.Run("sub", func(t *testing.T) { t.Log("a nested test") })
	})
}

// The second test finds the file of the first; a fresh guest does not have it.
func TestTestsWithOneConfigShareAGuest(t *testing.T) {
	config := vmtest.Config{Append: "only.this.test"}
	for _, round := range []struct {
		fresh, used bool
	}{{false, false}, {false, true}, {true, false}} {
		config.Fresh = round.fresh
		vmtest.InGuest(t, config, func(t *testing.T) {
			const mark = "/run/mark"
			_, err := os.Stat(mark)
			if used := err == nil; used != round.used {
				t.Errorf("a guest that was used before: %t, want %t", used, round.used)
			}
			if err := os.WriteFile(mark, nil, 0o644); err != nil {
				t.Error(err)
			}
		})
	}
}

// A fault that the kernel reports after a test that allows faults, or at boot, must not
// escape the next test.
func TestAGuestWhoseKernelReportedAFaultIsNotUsedAgain(t *testing.T) {
	config := vmtest.Config{Append: "only.this.test.of.faults"}
	for _, round := range []struct{ allowed bool }{{true}, {false}} {
		config.AllowKernelProblems = round.allowed
		vmtest.InGuest(t, config, func(t *testing.T) {
			const mark = "/run/mark"
			if _, err := os.Stat(mark); err == nil {
				t.Error("the guest had another test")
			}
			if err := os.WriteFile(mark, nil, 0o644); err != nil {
				t.Error(err)
			}
			if round.allowed {
				_ = os.WriteFile("/dev/kmsg", []byte("<4>WARNING: CPU: 0 PID: 1 at a test"), 0)
			}
		})
	}
}

func TestCgroupVersion1(t *testing.T) {
	vmtest.InGuest(t, vmtest.Config{Cgroup: 1, Modules: "bfq"}, func(t *testing.T) {
		for _, name := range []string{"blkio/tasks", "cpu/tasks", "pids/tasks", "blkio/blkio.throttle.io_service_bytes"} {
			if _, err := os.Stat("/sys/fs/cgroup/" + name); err != nil {
				t.Error(err)
			}
		}
		if text, err := os.ReadFile("/proc/mounts"); err != nil || strings.Contains(string(text), "cgroup2") {
			t.Errorf("%v:\n%s", err, text)
		}
	})
}
