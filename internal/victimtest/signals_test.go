package victimtest

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ignored reads which signals a new process ignores.
func ignored(t *testing.T) uint64 {
	t.Helper()
	status, err := exec.Command("cat", "/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "SigIgn:")
	mask, _, _ := strings.Cut(rest, "\n")
	signals, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return signals
}

func TestChildrenHearSignalsThatTheTestIgnores(t *testing.T) {
	endings := []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM}
	signal.Ignore(endings...)
	var all uint64
	for _, s := range endings {
		all |= 1 << (uint64(s.(unix.Signal)) - 1)
	}
	if before := ignored(t); before&all != all {
		t.Fatalf("children ignore %x of %x: this test shows nothing", before, all)
	}
	HearSignals()
	if after := ignored(t); after&all != 0 {
		t.Errorf("children ignore %x of %x", after, all)
	}
	// This process still does not end.
	for _, s := range endings {
		if err := unix.Kill(os.Getpid(), s.(unix.Signal)); err != nil {
			t.Error(fmt.Errorf("%v: %w", s, err))
		}
	}
}
