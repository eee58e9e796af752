// Package procstat reads /proc/PID/stat: whether a process runs, its parent, and when it
// started.
package procstat

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Stat is what the kernel says about a process: see proc_pid_stat(5).
type Stat struct {
	// State is R for a process that runs, Z for one that has ended and was not waited for.
	State byte
	// Parent is the process ID of the parent.
	Parent int
	// StartTicks is the start time in clock ticks since the host's start. Together with
	// the process ID it identifies a process for ever.
	StartTicks uint64
}

// Read reads the file of a process. The error matches os.ErrNotExist or unix.ESRCH if there
// is no such process.
func Read(pid int) (Stat, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return Stat{}, err
	}
	s, err := parse(string(text))
	if err != nil {
		return Stat{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Ended reports whether the process has ended and was not waited for.
func (s Stat) Ended() bool { return s.State == 'Z' || s.State == 'X' }

// parse reads one line. The second field is the name in parentheses, which may contain any
// character.
func parse(text string) (s Stat, err error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return Stat{}, fmt.Errorf("%d fields after the name", len(fields))
	}
	s.State = fields[0][0]
	if s.Parent, err = strconv.Atoi(fields[1]); err != nil {
		return Stat{}, err
	}
	s.StartTicks, err = strconv.ParseUint(fields[19], 10, 64)
	return s, err
}
