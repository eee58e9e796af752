package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

// host is a directory that a package's script takes for the root directory. In usr/bin
// are programs that write their names and arguments to log.
type host struct{ root, log string }

func newHost(t *testing.T) host {
	h := host{root: t.TempDir()}
	h.log = filepath.Join(h.root, "log")
	if err := os.MkdirAll(filepath.Join(h.root, "run/systemd/system"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"deb-systemd-helper", "deb-systemd-invoke", "systemctl", "daybook"} {
		h.program(t, program, "")
	}
	return h
}

// program replaces a program; then is what it does after it has noted its call.
func (h host) program(t *testing.T, name, then string) {
	t.Helper()
	path := filepath.Join(h.root, "usr/bin", name)
	write(t, path, "#!/bin/sh\necho "+name+" \"$*\" >>"+h.log+"\n"+then+"\n")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func (h host) path(name string) string { return filepath.Join(h.root, name) }

// script runs a script of a package, such as deb/postrm, through wrap if given. It returns what
// the script printed, and whether it succeeded.
func (h host) script(t *testing.T, script, arg string, wrap ...string) (string, bool) {
	t.Helper()
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	here := string(text)
	for _, dir := range []string{"/etc/", "/run/", "/usr/", "/var/"} {
		here = strings.ReplaceAll(here, dir, h.root+dir)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", here, "sh", arg)
	if len(wrap) > 0 {
		cmd = exec.CommandContext(t.Context(), wrap[0], append(wrap[1:], "sh", "-c", here, "sh", arg)...)
	}
	cmd.Env = append(os.Environ(), "PATH="+h.path("usr/bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Volumes and simulated disks are mounted below /run/daybook, and outlive the package.
func TestRemovalLeavesMountedVolumes(t *testing.T) {
	needs.Root(t)
	unshare := needs.Tool(t, "unshare")
	for script, arg := range map[string]string{"deb/postrm": "remove", "rpm/postun": "0"} {
		h := newHost(t)
		dir := h.path("run/daybook/volumes/db1")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		// The mounts end with the namespace.
		const mount = `mount -t tmpfs none "$0" && touch "$0/row" && "$@" && [ -e "$0/row" ]`
		if said, ok := h.script(t, script, arg, unshare, "--mount", "--propagation", "private", "--", "sh", "-c", mount, dir); !ok {
			t.Errorf("%s %s deletes a file of a mounted volume: %s", script, arg, said)
		}
	}
}

// With the program, nothing would be left to release a journal that adopt --once placed: its
// thread would keep the container's cgroup for ever. An upgrade keeps the program.
func TestARemovalReleasesWhatAdoptPlaced(t *testing.T) {
	for script, arg := range map[string]string{"deb/prerm": "remove", "rpm/preun": "0"} {
		h := newHost(t)
		said, ok := h.script(t, script, arg)
		called, at := calls(t, h), 0
		for _, want := range []string{"daybook restore\n", " daybook-adopt.service\n", "daybook adopt --release --all\n", "daybook-docker.socket"} {
			i := strings.Index(called[at:], want)
			if i < 0 {
				t.Errorf("%s: %q is missing or not in this order: %v, %s; called %s", script, want, ok, said, called)
				break
			}
			at += i
		}
		h = newHost(t)
		h.program(t, "daybook", `[ "$1" != adopt ]`)
		said, ok = h.script(t, script, arg)
		if called := calls(t, h); ok || strings.Contains(called, "daybook-docker") || !strings.Contains(said, "it could not release") {
			t.Errorf("%s: removed %v although adopt failed: %s; called %s", script, ok, said, called)
		}
	}
	for _, c := range [][2]string{{"deb/prerm", "upgrade"}, {"deb/prerm", "deconfigure"}, {"deb/prerm", "failed-upgrade"}, {"rpm/preun", "1"}} {
		h := newHost(t)
		if said, ok := h.script(t, c[0], c[1]); !ok || exists(h.log) {
			t.Errorf("%s %s: %v, %s; called %s", c[0], c[1], ok, said, calls(t, h))
		}
	}
}

// The package stays if a control runs on, and so must the units that hold volumes.
func TestARefusedRemovalStopsOnlyControl(t *testing.T) {
	for script, arg := range map[string]string{"deb/prerm": "remove", "rpm/preun": "0"} {
		h := newHost(t)
		if said, ok := h.script(t, script, arg); !ok || !strings.Contains(calls(t, h), "daybook-docker.socket") {
			t.Errorf("%s: %v, %s; called %s", script, ok, said, calls(t, h))
		}
		h = newHost(t)
		h.program(t, "daybook", "exit 1")
		_, ok := h.script(t, script, arg)
		if called := calls(t, h); ok || strings.Contains(called, "daybook-docker") || !strings.Contains(called, "stop daybook-control.service") {
			t.Errorf("%s: removed %v; called %s", script, ok, called)
		}
	}
}

// After a refusal neither dpkg nor rpm starts the units that the script has stopped.
func TestARefusedRemovalNamesTheUnitsThatItStopped(t *testing.T) {
	const control, adopt = "daybook-control.service", "daybook-adopt.service"
	for script, arg := range map[string]string{"deb/prerm": "remove", "rpm/preun": "0"} {
		for _, c := range []struct{ active, fails, want string }{
			{control + "|" + adopt, "adopt", "systemctl start " + control + " " + adopt + "\n"},
			{adopt, "adopt", "systemctl start " + adopt + "\n"},
			{control + "|" + adopt, "restore", "systemctl start " + control + "\n"},
			{"none", "adopt", ""},
		} {
			h := newHost(t)
			h.program(t, "systemctl", `case "$*" in "is-active "*) case $2 in `+c.active+`) echo active ;; *) echo inactive; exit 3 ;; esac ;; esac`)
			h.program(t, "daybook", `[ "$1" != `+c.fails+` ]`)
			said, ok := h.script(t, script, arg)
			if ok || !strings.Contains(said, c.want) || c.want == "" && strings.Contains(said, "systemctl") {
				t.Errorf("%s: active %s, %s fails: removed %v: %s; want %q", script, c.active, c.fails, ok, said, c.want)
			}
			if !strings.Contains(said, "If a file above cannot be read") {
				t.Errorf("%s, %s fails: a file that cannot be read is not mentioned: %s", script, c.fails, said)
			}
		}
	}
}

// calls are the programs that scripts have called.
func calls(t *testing.T, h host) string {
	t.Helper()
	text, err := os.ReadFile(h.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPurgeKeepsVolumes(t *testing.T) {
	const state = "var/lib/daybook"
	for name, c := range map[string]struct {
		prepare func(h host)
		keeps   bool
	}{
		"no state":            {func(host) {}, false},
		"empty default pool":  {func(h host) { mkdir(t, h.path(state+"/volumes/volumes")) }, false},
		"default pool":        {func(h host) { mkdir(t, h.path(state+"/volumes/volumes/db1")) }, true},
		"another pool":        {func(h host) { mkdir(t, h.path(state+"/fast/volumes/db1")) }, true},
		"listed pool":         {func(h host) { list(t, h, "srv/pool"); mkdir(t, h.path("srv/pool/volumes/db1")) }, true},
		"listed, empty":       {func(h host) { list(t, h, "srv/pool"); mkdir(t, h.path("srv/pool/volumes")) }, false},
		"listed, not mounted": {func(h host) { list(t, h, "srv/pool") }, true},
		"volumes cannot be read": {func(h host) {
			list(t, h, "srv/pool")
			mkdir(t, h.path("srv/pool"))
			write(t, h.path("srv/pool/volumes"), "")
		}, true},
	} {
		h := newHost(t)
		mkdir(t, h.path("etc/daybook"))
		mkdir(t, h.path(state))
		write(t, h.path(state+"/calibration"), "")
		c.prepare(h)
		said, ok := h.script(t, "deb/postrm", "purge")
		if !ok || exists(h.path(state)) != c.keeps || strings.Contains(said, "is kept") != c.keeps || exists(h.path("etc/daybook")) {
			t.Errorf("%s: state exists %v, want %v; %v, %s", name, exists(h.path(state)), c.keeps, ok, said)
		}
	}
}

// A pool's disk can be mounted in /var/lib/daybook: dpkg does not fail because of it.
func TestPurgeSucceedsWithAMount(t *testing.T) {
	needs.Root(t)
	unshare := needs.Tool(t, "unshare")
	for _, at := range []string{"var/lib/daybook", "var/lib/daybook/volumes"} {
		h := newHost(t)
		mkdir(t, h.path(at))
		said, ok := h.script(t, "deb/postrm", "purge", unshare, "--mount", "--propagation", "private", "--", "sh", "-c", `mount -t tmpfs none "$0" && "$@"`, h.path(at))
		if !ok || !strings.Contains(said, "is kept") {
			t.Errorf("%s: %v, %s", at, ok, said)
		}
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

// list notes a pool in the list of pools.
func list(t *testing.T, h host, pool string) {
	t.Helper()
	write(t, h.path("var/lib/daybook/pools"), h.path(pool)+"\n")
}
