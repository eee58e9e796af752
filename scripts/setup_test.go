// Package scripts tests the shell scripts of this folder.
package scripts

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/needs"
)

// setup prepares scripts/setup with a PATH in which all packages are missing, and an apt-get that does
// as the text says. It installs nothing, and its policy for the start of daemons is a file of the test.
func setup(t *testing.T, user, aptGet string) (cmd *exec.Cmd, policy string) {
	t.Helper()
	bin, policy := t.TempDir(), filepath.Join(t.TempDir(), "policy-rc.d")
	for name, text := range map[string]string{"apt-get": aptGet, "go": "", "id": "echo " + user, "mount": ""} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sh", "sed", "dirname", "rm", "chmod", "ls", "sleep"} {
		if err := os.Symlink(needs.Tool(t, name), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd = exec.Command("./setup", "build")
	cmd.Env = []string{"PATH=" + bin, "DAYBOOK_POLICY=" + policy}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, policy
}

// A policy that stays would keep the daemons of all later packages from starting.
func TestASetupThatIsStoppedLeavesNoPolicy(t *testing.T) {
	for number, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		if signal.Ignored(number) {
			continue // as by nohup: a shell cannot trap it either
		}
		cmd, policy := setup(t, "0", "sleep 60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			if text, err := os.ReadFile(policy); err == nil && strings.Contains(string(text), "exit 101") {
				break
			}
			if time.Since(begin) > 20*time.Second {
				t.Fatal("no policy was made")
			}
		}
		if err := syscall.Kill(-cmd.Process.Pid, number); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%v: exit code %d, want %d", number, got, code)
		}
		if _, err := os.Lstat(policy); err == nil {
			t.Errorf("%v: the policy is still there", number)
		}
	}
}

// The policy of a set-up that was killed is removed; those of others stay.
func TestTheNextSetupRemovesThePolicyOfAKilledOne(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		user, text string
		stays      bool
	}{
		"of a killed set-up":          {"0", "# made by Daybook's scripts/setup, process " + strconv.Itoa(dead.Process.Pid), false},
		"of one that runs":            {"0", "# made by Daybook's scripts/setup, process " + strconv.Itoa(os.Getpid()), true},
		"of the administrator":        {"0", "# no daemons here", true},
		"of root, and this is a user": {"1000", "# made by Daybook's scripts/setup, process " + strconv.Itoa(dead.Process.Pid), true},
	} {
		cmd, policy := setup(t, c.user, "")
		text := "#!/bin/sh\n" + c.text + "\nexit 101\n"
		if err := os.WriteFile(policy, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if kept, err := os.ReadFile(policy); c.stays != (err == nil) || err == nil && string(kept) != text {
			t.Errorf("%s: %q, %v\n%s", name, kept, err, out)
		}
	}
}
