package program

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
)

func TestOutputIsStandardOutputAlone(t *testing.T) {
	c := Command{Path: "sh", Args: []string{"-c", "cat; echo warning >&2; exit $CODE"}, Input: strings.NewReader("asked\n")}
	c.Environment = []string{"CODE=0"}
	if text, err := Output(t.Context(), c); err != nil || text != "asked\n" {
		t.Errorf("%q, %v; want what is on standard output", text, err)
	}
	c.Environment, c.Input = []string{"CODE=3"}, strings.NewReader("some\n")
	text, err := Output(t.Context(), c)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(err.Error(), "warning") || text != "some\n" {
		t.Errorf("a program that fails: %q, %v; want exit status 3 with its standard error, and its standard output", text, err)
	}
}

func TestOutputIsWholeAndRunKeepsItsEnd(t *testing.T) {
	const bytesWritten = 3 << 20
	c := Command{Path: "sh", Args: []string{"-c", "head -c 3145728 /dev/zero; printf end"}}
	if text, err := Output(t.Context(), c); err != nil || len(text) != bytesWritten+3 {
		t.Errorf("%d bytes, %v; want all of them", len(text), err)
	}
	if text, err := Run(t.Context(), c); err != nil || len(text) != tailBytes || !strings.HasSuffix(text, "end") {
		t.Errorf("%d bytes, %v; want the last MiB", len(text), err)
	}
	w := whole{}
	_, _ = w.text.Write(make([]byte, outputBytes))
	if _, _ = w.Write([]byte("x")); !w.over || w.text.Len() != outputBytes {
		t.Error("more than the bound is kept")
	}
}

func TestEachStreamGoesToItsWriter(t *testing.T) {
	var out, complaints bytes.Buffer
	kept, err := Run(t.Context(), Command{Path: "sh", Args: []string{"-c", "echo out; echo err >&2"}, Output: &out, Errors: &complaints})
	if err != nil || kept != "" || out.String() != "out\n" || complaints.String() != "err\n" {
		t.Errorf("%q, %q, kept %q, %v", &out, &complaints, kept, err)
	}
}

func TestAMissingProgramGivesAdvice(t *testing.T) {
	_, err := Run(t.Context(), Command{Path: "daybook-no-such-program", IfMissing: "install nothing"})
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "install nothing") {
		t.Errorf("got %v", err)
	}
}

// A lock is held while a program that inherited it, or a child of it, runs.
func TestAnInheritedLockIsHeldUntilTheLastHasEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	p, err := Start(Command{Path: "sh", Args: []string{"-c", "sleep 1000"}, Inherited: []*os.File{file}})
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	free := func() bool {
		t.Helper()
		other, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		return unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
	}
	if free() {
		t.Error("the lock is free while the program runs")
	}
	p.Kill()
	for deadline := time.Now().Add(awaittest.Patience); !free(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the lock is not free although no process holds it")
		}
	}
}

func TestTheWholeGroupIsKilledWhenTheContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	pidFile := filepath.Join(t.TempDir(), "pid")
	done := make(chan error, 1)
	go func() {
		_, err := Output(ctx, Command{Path: "sh", Args: []string{"-c", `sleep 1000 & echo $! >"$0".next && mv "$0".next "$0"; wait`, pidFile}})
		done <- err
	}()
	var text []byte
	for deadline := time.Now().Add(awaittest.Patience); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if text, err = os.ReadFile(pidFile); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the program did not start")
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	gone(t, atoi(t, text))
}

func atoi(t *testing.T, text []byte) int {
	t.Helper()
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return number
}
