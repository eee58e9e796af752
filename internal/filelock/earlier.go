package filelock

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// TakeBoth takes the lock at path, as [Take] does, and the lock at public, a
// file or directory, that earlier versions of Daybook used: see [TryEarlier].
func TakeBoth(path, public string) (*Lock, error) {
	l, err := Take(path)
	if err != nil {
		return nil, err
	}
	if l.earlier, err = os.OpenFile(public, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
		_, err = TryEarlier(l.earlier)
	}
	if err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// TryEarlier takes the lock that earlier versions of Daybook used: that of a file or
// directory which other users may open. The caller holds its own lock from [Take]; this
// one only excludes an earlier version that runs at the same time. The error is a
// *HeldError if a process named daybook* of root or of this user holds it.
//
// Any other holder is ignored, because any user can hold it. The file is then not locked,
// and stranger is the number of the process, or -1 if /proc/locks does not show it (a
// process in another PID namespace) or it is dead. Otherwise stranger is 0.
func TryEarlier(file *os.File) (stranger int, err error) {
	err = TryLock(file)
	var held *HeldError
	if !errors.As(err, &held) {
		return 0, err
	}
	stranger = -1
	for _, pid := range Takers(file) {
		switch {
		case pid == os.Getpid():
			// A child of ours has not yet closed an inherited descriptor.
			return 0, nil
		case isDaybook(pid):
			held.PID = pid
			return 0, held
		}
		stranger = pid
	}
	return stranger, nil
}

// Takers returns the living processes that took the flock of an open file,
// according to /proc/locks. A process that inherited the lock does not count, nor
// does one in another PID namespace. A lock without a taker usually belongs to a
// child whose parent was killed just after starting it. Files are identified only
// by their inode numbers, because the device in /proc/locks is that of the
// superblock, which on btrfs differs from stat(2).
func Takers(file *os.File) (pids []int) {
	var st unix.Stat_t
	if unix.Fstat(int(file.Fd()), &st) != nil {
		return nil
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return nil
	}
	defer func() { _ = locks.Close() }()
	for scanner := bufio.NewScanner(locks); scanner.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 1234 00:16:5678 0 EOF
		fields := strings.Fields(scanner.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" || !strings.HasSuffix(fields[5], fmt.Sprintf(":%d", st.Ino)) {
			continue
		}
		// The initial PID namespace also shows dead processes.
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 && !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// isDaybook reports whether a process is a Daybook whose user may hold this
// user's locks. All three user IDs count. A program with the set-user-ID bit
// does not count: the user who starts it can have locked a file before, and can
// choose its name.
func isDaybook(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || !strings.HasPrefix(string(name), "daybook") {
		return false
	}
	// Reading another process's program may be forbidden; its IDs are public.
	if program, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && program.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		ids, found := strings.CutPrefix(line, "Uid:")
		if !found {
			continue
		}
		for _, id := range strings.Fields(ids) { // real, effective, saved, file system
			if id != "0" && id != strconv.Itoa(os.Geteuid()) {
				return false
			}
		}
		return true
	}
	return false
}
