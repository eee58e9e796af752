package procstat

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
)

func TestANameMayContainAnything(t *testing.T) {
	got, err := parse("12 (a ) Z 1 (b)) S 7 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 3456 1 2\n")
	if want := (Stat{'S', 7, 3456}); err != nil || got != want || got.Ended() {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"", "12 (a) S 7", "12 (a) S x 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 3456", "12 (a) S 7 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 x"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q has no error", text)
		}
	}
}

func TestAProcessIsReadUntilItIsWaitedFor(t *testing.T) {
	process := exec.Command("sleep", "1000")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	pid := process.Process.Pid
	waited := false
	t.Cleanup(func() {
		_ = process.Process.Kill()
		if !waited {
			_ = process.Wait()
		}
	})
	own, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	running, err := Read(pid)
	if err != nil || running.Ended() || running.Parent != os.Getpid() || running.StartTicks < own.StartTicks {
		t.Errorf("running: %+v, %v; this process: %+v", running, err, own)
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaittest.Until(t, awaittest.Patience, "the process has ended", func() bool {
		ended, err := Read(pid)
		return err == nil && ended.Ended() && ended.StartTicks == running.StartTicks
	})
	_ = process.Wait()
	waited = true
	if _, err := Read(pid); !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		t.Errorf("after it was waited for: %v", err)
	}
}
