package mountpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/volume/placement"
)

// Elsewhere finds a process in another mount namespace that has a copy of a mount of the
// device, and keeps it when ours is unmounted; 0 if there is none. It fails if it cannot
// read the mounts of a process.
//
// It reads /proc/PID/mountinfo, which all users may read. /proc/PID/ns/mnt requires
// PTRACE_MODE_READ, and so CAP_SYS_PTRACE for most processes; it only avoids reading the
// same namespace again.
func Elsewhere(dev blockdev.Dev) (pid int, err error) {
	if err := checkProcessesVisible(); err != nil {
		return 0, err
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0, err
	}
	own := mountIDs(string(text), dev.String())
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	seen := map[string]bool{}
	for _, process := range processes {
		pid, err := strconv.Atoi(process.Name())
		if err != nil {
			continue
		}
		directory := filepath.Join("/proc", process.Name())
		namespace, err := os.Readlink(filepath.Join(directory, "ns/mnt"))
		if err == nil && seen[namespace] {
			continue
		}
		known := err == nil
		text, err := os.ReadFile(filepath.Join(directory, "mountinfo"))
		if hasEnded(err) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("cannot find out whether process %d (%s) has it mounted in another mount namespace: %w; this requires CAP_SYS_PTRACE, or a /proc without hidepid=",
				pid, strings.TrimSpace(placement.CommandName(pid)), err)
		}
		if known {
			seen[namespace] = true
		}
		for line := range strings.Lines(string(text)) {
			if isPrivateMount(line, dev.String()) && !own[mountID(line)] {
				return pid, nil
			}
		}
	}
	return 0, nil
}

// hasEnded says that reading a process's mountinfo failed because it has ended. For a
// zombie, which has no mounts, the kernel returns EINVAL.
func hasEnded(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}

// mountID is the first field of a line of mountinfo. It is unique in all mount namespaces.
func mountID(line string) string {
	id, _, _ := strings.Cut(line, " ")
	return id
}

// mountIDs returns the IDs of a device's mounts in the text of a mountinfo.
func mountIDs(text, dev string) map[string]bool {
	ids := map[string]bool{}
	for line := range strings.Lines(text) {
		if fields := strings.Split(line, " "); len(fields) > 2 && fields[2] == dev {
			ids[fields[0]] = true
		}
	}
	return ids
}

// checkProcessesVisible refuses a /proc that does not list all processes.
func checkProcessesVisible() error {
	mounts, err := blockdev.Mounts()
	if err != nil {
		return err
	}
	groups, err := os.Getgroups()
	if err != nil {
		return err
	}
	hides := ""
	for _, mount := range mounts {
		if mount.Point == "/proc" {
			hides = hiding(mount.Options, append(groups, os.Getegid())) // the last one is on top
		}
	}
	if hides == "" || hasPtrace() {
		return nil
	}
	return fmt.Errorf("cannot find out which other processes have it mounted: /proc has %s, and hides processes from this one, which lacks CAP_SYS_PTRACE; mount -o remount,hidepid=0 /proc", hides)
}

// hiding is the option by which a /proc hides processes from a member of these
// groups; "" if it has none (proc(5)). With hidepid=invisible the group gid= sees all
// processes; without gid= that is root's group. With ptraceable no group does.
func hiding(options string, groups []int) string {
	hides, group := "", 0
	for option := range strings.SplitSeq(options, ",") {
		key, value, _ := strings.Cut(option, "=")
		switch {
		case key == "gid":
			group, _ = strconv.Atoi(value)
		case key != "hidepid":
		case value == "4" || value == "ptraceable":
			return option
		case value == "2" || value == "invisible":
			hides = option
		}
	}
	if slices.Contains(groups, group) {
		return ""
	}
	return hides
}

// hasPtrace says whether this process has CAP_SYS_PTRACE; false if that is unknown.
func hasPtrace() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0
}

// isPrivateMount says whether a line of mountinfo is of a device and has none
// of the optional fields, shared:N and master:N, by which an unmounting comes
// to it from other namespaces (proc_pid_mountinfo(5)).
func isPrivateMount(line, dev string) bool {
	before, _, _ := strings.Cut(line, " - ")
	fields := strings.Split(before, " ")
	if len(fields) < 6 || fields[2] != dev {
		return false
	}
	for _, field := range fields[6:] {
		if strings.HasPrefix(field, "shared:") || strings.HasPrefix(field, "master:") {
			return false
		}
	}
	return true
}
