package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/ext4test"
)

// appendAndSync is a loop of appends and fdatasyncs in the directory $0.
const appendAndSync = `while :; do echo x >> "$0/file"; sync -d "$0/file"; done`

// containerThatSyncs runs a script, with dir as $0, in a cgroup of its own, and returns
// its path.
func containerThatSyncs(t *testing.T, dir, name, script string) string {
	t.Helper()
	tree := cgrouptest.Tree(t)
	at := cgrouptest.New(t, tree, name)
	syncs := exec.Command("sh", "-c", script, dir)
	syncs.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := syncs.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Kill(-syncs.Process.Pid, unix.SIGKILL)
		_ = syncs.Wait()
	})
	if err := tree.Move(syncs.Process.Pid, at); err != nil {
		t.Fatal(err)
	}
	return at
}

// The command on a real file system: a container that syncs is shown with its
// calls, by name and by path, and not where another is asked for.
func TestBlameShowsWhoSyncs(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	at := containerThatSyncs(t, fs.Dir, "blame", appendAndSync)
	var out string
	var syncing *account.Waiter
	// On a busy host no call may end in a short interval.
	for _, interval := range []string{"2s", "8s", "32s", "1m"} {
		var err error
		if out, err = execute(t, "blame", "--interval", interval, "--device", fs.Disk.Name, "--container", at, "--json"); err != nil {
			t.Fatal(err)
		}
		var got blameOutput
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		for i, w := range got.Waiters {
			if w.Cgroup != at {
				t.Errorf("shows %s, which is not asked for", w.Cgroup)
			}
			if w.Operation == "fdatasync" {
				syncing = &got.Waiters[i]
			}
		}
		if syncing != nil {
			break
		}
	}
	if syncing == nil || syncing.Calls == 0 || syncing.Device != fs.Disk.Name || syncing.P99Seconds <= 0 {
		t.Fatalf("got %s", out)
	}
	var phases, culprits float64
	for _, seconds := range syncing.Phases {
		phases += seconds
	}
	for _, c := range syncing.Culprits {
		culprits += c.Seconds
	}
	if !isNear(phases, syncing.WaitSeconds) || !isNear(culprits, syncing.WaitSeconds) {
		t.Errorf("%g s, but the phases have %g s and the culprits %g s", syncing.WaitSeconds, phases, culprits)
	}

	var text string
	var err error
	for _, interval := range []string{"1s", "8s", "32s", "1m"} {
		if text, err = execute(t, "blame", "--interval", interval, "--device", fs.Disk.Name); err != nil || !strings.HasPrefix(text, "nobody waited") {
			break
		}
	}
	if err != nil || !strings.Contains(text, at+" waited ") || !strings.Contains(text, " in fdatasync on "+fs.Disk.Name) {
		t.Errorf("%v: %s", err, text)
	}
	if text, err = execute(t, "blame", "--interval", "1s", "--device", fs.Disk.Name, "--container", "other-*"); err != nil || !strings.HasPrefix(text, "no container that matches other-* waited") {
		t.Errorf("%v: %s", err, text)
	}
}

func isNear(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }

func TestBlameRefusesWrongFlags(t *testing.T) {
	for _, words := range [][]string{
		{"--interval", "1ms"}, {"--container", "[a"}, {"--limit", "-1"}, {"--device", "no-such-disk"}, {"extra"},
	} {
		_, err := execute(t, append([]string{"blame"}, words...)...)
		var usage usageError
		if !errors.As(err, &usage) && os.Geteuid() == 0 {
			t.Errorf("%q: %v; want a usage error", words, err)
		}
	}
}
