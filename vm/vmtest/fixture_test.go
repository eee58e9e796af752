package vmtest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// fixtureVariable lets TestFixture do something that a test must not do; the
// tests below run it in a test binary of their own.
const fixtureVariable = "DAYBOOK_VM_TEST_FIXTURE"

func TestFixture(t *testing.T) {
	fixture := os.Getenv(fixtureVariable)
	if fixture == "" {
		return // no test, but what the test below runs
	}
	if fixture == "other side" && vmtest.Inside() {
		t.Log("it ends before it comes to InGuest")
		return
	}
	config := vmtest.Config{AllowKernelProblems: fixture == "allowed problem"}
	vmtest.InGuest(t, config, func(t *testing.T) {
		if !vmtest.Inside() {
			t.Fatal("not inside")
		}
		switch fixture {
		case "pass":
			t.Log("all is well")
			t.Run("nested", func(t *testing.T) { t.Log("here too") })
		case "fail":
			t.Run("nested", func(t *testing.T) { t.Error("as it should fail") })
		case "go panic":
			panic("a panic of Go")
		case "exit":
			os.Exit(0)
		case "skip":
			t.Skip("the reason to skip")
		case "need":
			needs.That(t, false, "what no guest has")
		case "kernel panic":
			_ = os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0)
			time.Sleep(time.Minute)
		case "problem", "allowed problem":
			_ = os.WriteFile("/dev/kmsg", []byte("<4>WARNING: CPU: 0 PID: 1 at a test"), 0)
		case "slow":
			time.Sleep(time.Hour)
		}
	})
}

// What happens in the guest must be what go test says on the host.
func TestResultsOfTheGuestAreThoseOfTheHost(t *testing.T) {
	kernel := vmtest.Kernels(t)[0]
	vmtest.Need(t, kernel)
	for _, test := range []struct {
		fixture, result string
		said            []string
		flags           []string
		env             []string
	}{
		{"pass", "PASS", []string{"all is well", "here too", "--- PASS: TestFixture/kernel-K/nested"}, nil, nil},
		{"fail", "FAIL", []string{"as it should fail", "--- FAIL: TestFixture/kernel-K/nested"}, nil, nil},
		{"go panic", "FAIL", []string{"a panic of Go", "fixture_test.go"}, nil, nil},
		{"exit", "FAIL", nil, nil, nil},
		{"skip", "SKIP", []string{"the reason to skip"}, nil, []string{"DAYBOOK_REQUIRE_ALL="}},
		{"need", "SKIP", []string{"needs what no guest has"}, nil, []string{"DAYBOOK_REQUIRE_ALL="}},
		{"need", "FAIL", []string{"required here, but missing: what no guest has"}, nil, []string{"DAYBOOK_REQUIRE_ALL=1"}},
		{"kernel panic", "FAIL", []string{"the guest's kernel panicked: sysrq triggered crash"}, nil, nil},
		{"problem", "FAIL", []string{"WARNING: CPU: 0 PID: 1 at a test"}, nil, nil},
		{"allowed problem", "PASS", nil, nil, nil},
		{"other side", "FAIL", []string{"the guest did not run TestFixture/kernel-K"}, nil, nil},
		{"slow", "FAIL", []string{"panic: test timed out"}, []string{"-test.timeout=25s"}, nil},
	} {
		t.Run(test.fixture+" gives "+test.result, func(t *testing.T) {
			if test.fixture != "fail" && test.fixture != "problem" {
				vmtest.Long(t)
			}
			cmd := exec.Command(os.Args[0], append([]string{"-test.run=^TestFixture$", "-test.v"}, test.flags...)...)
			cmd.Env = append(append(os.Environ(), fixtureVariable+"="+test.fixture, "DAYBOOK_VM_KERNELS="+kernel), test.env...)
			out, err := cmd.CombinedOutput()
			if (err != nil) != (test.result == "FAIL") {
				t.Errorf("%v", err)
			}
			want := append([]string{"--- " + test.result + ": TestFixture/kernel-" + kernel + " ("}, test.said...)
			for _, w := range want {
				if w = strings.ReplaceAll(w, "kernel-K", "kernel-"+kernel); !strings.Contains(string(out), w) {
					t.Errorf("it does not say %q", w)
				}
			}
			if t.Failed() {
				t.Logf("it said:\n%s", out)
			}
		})
	}
}
