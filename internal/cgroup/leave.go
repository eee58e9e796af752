package cgroup

import (
	"os"
	"path/filepath"
	"strings"
)

// LeaveAll moves this process to the root of each cgroup hierarchy, because systemd
// and container runtimes kill the remaining processes of a unit or container by its
// cgroup. It returns the cgroups that it could not leave.
func LeaveAll() (still []string) {
	mountinfo, _ := os.ReadFile("/proc/self/mountinfo") // without, /proc/self/cgroup lists them
	for _, mount := range parseMountinfo(string(mountinfo)) {
		if mount.Root == "/" && (mount.Type == "cgroup" || mount.Type == "cgroup2") {
			// 0 is the writer. A cgroup that it could not leave is listed below.
			_ = os.WriteFile(filepath.Join(mount.Point, processesFile), []byte("0"), 0)
		}
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(string(text)) {
		// Such as "4:memory:/user.slice"; a name may hold colons.
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) == 3 && fields[2] != "/" {
			still = append(still, fields[1]+":"+fields[2])
		}
	}
	return still
}
