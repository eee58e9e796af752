package vmtest_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// fixtureVariable selects an action that a test must not do; the tests below run
// TestFixture in a separate process of the test binary.
const fixtureVariable = "DAYBOOK_VM_TEST_FIXTURE"

func TestFixture(t *testing.T) {
	fixture := os.Getenv(fixtureVariable)
	if fixture == "" {
		return // not a test; the test below runs it
	}
	if fixture == "other side" && vmtest.Inside() {
		t.Log("it returns before InGuest")
		return
	}
	if fixture == "booted problem" {
		vmtest.EachKernel(t, func(t *testing.T, kernel string) {
			m := vmtest.Boot(t, vm.Config{Kernel: kernel})
			if _, err := m.Run(t.Context(), "sh", "-c", "echo '<4>WARNING: fs/a.c:1 at a_test+0x1/0x2, CPU#0: sh/1' >/dev/kmsg"); err != nil {
				t.Error(err)
			}
			if err := m.Reboot(t.Context()); err != nil {
				t.Error(err)
			}
		})
		return
	}
	config := vmtest.Config{AllowKernelProblems: fixture == "allowed problem", Systemd: fixture == "journal error"}
	vmtest.InGuest(t, config, func(t *testing.T) {
		if !vmtest.Inside() {
			t.Fatal("not inside")
		}
		switch fixture {
		case "pass":
			t.Log("all is well")
			t.Run("nested", func(t *testing.T) { t.Log("a nested test") })
		case "fail":
			t.Run("nested", func(t *testing.T) { t.Error("an expected failure") })
		case "go panic":
			panic("a panic of Go")
		case "exit":
			os.Exit(0)
		case "skip":
			t.Skip("the reason to skip")
		case "need":
			needs.That(t, false, "a missing prerequisite")
		case "kernel panic":
			_ = os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0)
			time.Sleep(time.Minute)
		case "problem", "allowed problem":
			_ = os.WriteFile("/dev/kmsg", []byte("<4>WARNING: CPU: 0 PID: 1 at a test"), 0)
		case "journal error":
			if err := exec.Command("logger", "--priority", "daemon.err", "an error of a daemon").Run(); err != nil {
				t.Error(err)
			}
		case "slow":
			time.Sleep(time.Hour)
		}
	})
}

// go test on the host must report the result of the test in the guest.
func TestGuestResultsBecomeHostResults(t *testing.T) {
	kernel := vmtest.Kernels(t)[0]
	vmtest.Need(t, kernel)
	for _, test := range []struct {
		fixture, result string
		output          []string
		flags           []string
		env             []string
	}{
		{"pass", "PASS", []string{"all is well", "a nested test", "--- PASS: TestFixture/kernel-K/nested"}, nil, nil},
		{"fail", "FAIL", []string{"an expected failure", "--- FAIL: TestFixture/kernel-K/nested"}, nil, nil},
		{"go panic", "FAIL", []string{"a panic of Go", "fixture_test.go"}, nil, nil},
		{"exit", "FAIL", nil, nil, nil},
		{"skip", "SKIP", []string{"the reason to skip"}, nil, []string{"DAYBOOK_REQUIRE_ALL="}},
		{"need", "SKIP", []string{"needs a missing prerequisite"}, nil, []string{"DAYBOOK_REQUIRE_ALL="}},
		{"need", "FAIL", []string{"required here, but missing: a missing prerequisite"}, nil, []string{"DAYBOOK_REQUIRE_ALL=1"}},
		{"kernel panic", "FAIL", []string{"the guest's kernel panicked: sysrq triggered crash"}, nil, nil},
		{"problem", "FAIL", []string{"WARNING: CPU: 0 PID: 1 at a test"}, nil, nil},
		{"allowed problem", "PASS", nil, nil, nil},
		{"booted problem", "FAIL", []string{"the guest's kernel reported faults:", "WARNING: fs/a.c:1 at a_test+0x1/0x2, CPU#0: sh/1"}, nil, nil},
		{"other side", "FAIL", []string{"the guest did not run TestFixture/kernel-K"}, nil, nil},
		{"journal error", "FAIL", []string{"the systemd journal has errors", "an error of a daemon"}, nil, nil},
		{"slow", "FAIL", []string{"panic: test timed out"}, []string{"-test.timeout=25s"}, nil},
	} {
		t.Run(test.fixture+" gives "+test.result, func(t *testing.T) {
			if !slices.Contains([]string{"fail", "problem", "booted problem"}, test.fixture) {
				vmtest.Long(t)
			}
			cmd := exec.Command(os.Args[0], append([]string{"-test.run=^TestFixture$", "-test.v"}, test.flags...)...)
			cmd.Env = append(append(os.Environ(), fixtureVariable+"="+test.fixture, "DAYBOOK_VM_KERNELS="+kernel), test.env...)
			out, err := cmd.CombinedOutput()
			if (err != nil) != (test.result == "FAIL") {
				t.Errorf("%v", err)
			}
			want := append([]string{"--- " + test.result + ": TestFixture/kernel-" + kernel + " ("}, test.output...)
			for _, w := range want {
				if w = strings.ReplaceAll(w, "kernel-K", "kernel-"+kernel); !strings.Contains(string(out), w) {
					t.Errorf("its output lacks %q", w)
				}
			}
			if t.Failed() {
				t.Logf("its output:\n%s", out)
			}
		})
	}
}
