package procstat

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Killed reports whether a process was sent SIGKILL that its first thread has not died of:
// the thread is about to, or waits for something that no signal interrupts.
func Killed(pid int) (bool, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	killed, err := killPending(string(text))
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return killed, nil
}

// killPending looks for SIGKILL among the signals that wait, for the thread (SigPnd) and for
// the process (ShdPnd).
func killPending(status string) (bool, error) {
	var pending uint64
	for _, field := range []string{"SigPnd:", "ShdPnd:"} {
		_, rest, found := strings.Cut(status, "\n"+field)
		if !found {
			return false, fmt.Errorf("no field %s", field)
		}
		mask, _, _ := strings.Cut(rest, "\n")
		signals, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
		if err != nil {
			return false, err
		}
		pending |= signals
	}
	return pending&(1<<(unix.SIGKILL-1)) != 0, nil
}
