package cgroup

import "testing"

// In a container, Docker mounts the container's own cgroup in the place of the hierarchy.
func TestAMountOfAPartOfAHierarchyIsSeen(t *testing.T) {
	const (
		host  = "31 23 0:26 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
		own   = "99 31 0:26 /system.slice/docker-1f.scope /sys/fs/cgroup rw,relatime - cgroup2 cgroup rw\n"
		above = "98 23 0:26 /../.. /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
		other = "97 23 0:26 /system.slice /mnt rw,relatime - cgroup2 cgroup2 rw\n"
	)
	for mountinfo, want := range map[string]bool{host: false, own: true, above: true, host + own: true, own + host: false, host + other: false, "": false} {
		if got := isPartial(mountinfo, "/sys/fs/cgroup"); got != want {
			t.Errorf("partial: %t, want %t, with\n%s", got, want, mountinfo)
		}
	}
}
