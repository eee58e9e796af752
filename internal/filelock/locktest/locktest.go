// Package locktest makes other programs hold locks, for tests.
package locktest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

// Hold makes a program with the arguments of flock(1) hold the lock of a path
// until the test ends, or release is called. Without a command it is flock
// itself.
func Hold(t testing.TB, path string, command ...string) (pid int, release func()) {
	t.Helper()
	if len(command) == 0 {
		command = []string{needs.Tool(t, "flock"), "--shared"}
	}
	// "locked" is printed when the lock is held; cat ends with its input.
	cmd := exec.Command(command[0], append(command[1:], path, "sh", "-c", "echo locked; exec cat")...)
	cmd.Stderr = os.Stderr
	input, err1 := cmd.StdinPipe()
	output, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	released := false
	release = func() {
		if released {
			return
		}
		released = true
		if err := errors.Join(input.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(release)
	if _, err := output.Read(make([]byte, 7)); err != nil {
		t.Fatalf("%v does not lock %s: %v", command, path, err)
	}
	return cmd.Process.Pid, release
}

// AsNobody returns a command that runs another as the user nobody.
func AsNobody(t testing.TB, command ...string) []string {
	t.Helper()
	needs.Root(t)
	return append([]string{needs.Tool(t, "setpriv"), "--reuid", "65534", "--regid", "65534", "--clear-groups"}, command...)
}

// EarlierDaybook makes a program in a directory that locks like an earlier
// version of Daybook and has its name; for [Hold].
func EarlierDaybook(t testing.TB, dir string) string {
	t.Helper()
	program, err := os.ReadFile(needs.Tool(t, "flock"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "daybook")
	if err := errors.Join(os.WriteFile(path, program, 0o755), os.Chmod(path, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}
