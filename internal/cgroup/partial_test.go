package cgroup

import "testing"

// In a container, Docker mounts the container's own cgroup in the place of the hierarchy.
func TestTheLastMountSaysWhichPartOfAHierarchyIsMounted(t *testing.T) {
	const (
		host  = "31 23 0:26 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
		own   = "99 31 0:26 /system.slice/docker-1f.scope /sys/fs/cgroup rw,relatime - cgroup2 cgroup rw\n"
		above = "98 23 0:26 /../.. /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
		other = "97 23 0:26 /system.slice /mnt rw,relatime - cgroup2 cgroup2 rw\n"
	)
	for mountinfo, want := range map[string]string{
		host: "/", own: "/system.slice/docker-1f.scope", above: "/../..",
		host + own: "/system.slice/docker-1f.scope", own + host: "/", host + other: "/", "": "",
	} {
		if got := mountedRoot(mountinfo, "/sys/fs/cgroup"); got != want {
			t.Errorf("%q is mounted, want %q, with\n%s", got, want, mountinfo)
		}
	}
}

func TestATreeIsPartialUnlessItHasTheRootOrTheCgroupsOfAHostOfItsOwn(t *testing.T) {
	const root, other = 1, 4810
	for _, c := range []struct {
		name                  string
		view                  view
		complete, matchesProc bool
	}{
		{"the host", view{"/", "/init.scope", root}, true, true},
		{"the host's namespaces, the own cgroup mounted", view{"/machine.slice/a", "/init.scope", other}, false, false},
		{"a cgroup namespace of its own, the host's /sys", view{"/../..", "/../../init.scope", root}, true, false},
		{"a cgroup namespace of its own below the root, the host's /sys", view{"/..", "/..", root}, true, false},
		{"a cgroup namespace of its own, its root mounted", view{"/", "/../../init.scope", other}, false, false},
		{"PID and cgroup namespaces of its own", view{"/", "/", other}, true, true},
		{"PID and cgroup namespaces of its own, the host's /sys", view{"/../..", "/", root}, true, false},
		{"Docker in Docker on v1", view{"/docker/1f", "/docker/1f", other}, false, false},
		{"a hidden process 1", view{"/", "", root}, true, true},
		{"a cgroup whose name begins with two dots", view{"/", "/..a", root}, true, true},
	} {
		if complete, matches := c.view.complete(), c.view.matchesProc(); complete != c.complete || matches != c.matchesProc {
			t.Errorf("%s: complete %t, matches /proc %t; want %t and %t", c.name, complete, matches, c.complete, c.matchesProc)
		}
	}
}
