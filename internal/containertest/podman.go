package containertest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/daybook-project/daybook/internal/needs"
)

// Podman is a podman with private storage and configuration.
type Podman struct {
	w      *Workshop
	config string
}

// StartPodman prepares podman with the image, and with the workshop's volume
// plugin as the driver that has the workshop's name.
func (w *Workshop) StartPodman() *Podman {
	w.t.Helper()
	for _, tool := range []string{"podman", "runc", "conmon"} {
		needs.Tool(w.t, tool)
	}
	p := &Podman{w, w.Path("containers.conf")}
	lines := []string{
		"[engine]", `cgroup_manager = "cgroupfs"`, `runtime = "runc"`, `events_logger = "none"`, `lock_type = "file"`,
		fmt.Sprintf("tmp_dir = %q", w.Path("podman-tmp")), fmt.Sprintf("static_dir = %q", w.Path("podman-static")), fmt.Sprintf("volume_path = %q", w.Path("podman-volumes")),
		"[engine.volume_plugins]", fmt.Sprintf("%q = %q", w.Name, w.PluginSocket()),
	}
	if err := os.WriteFile(p.config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	p.Run("import", w.Image(), Image)
	return p
}

// Try runs podman and returns the last line of its output.
func (p *Podman) Try(arguments ...string) (string, error) {
	command := exec.Command("podman", append([]string{
		"--root", p.w.Path("podman-root"), "--runroot", p.w.Path("prun"), "--storage-driver", "vfs",
	}, arguments...)...)
	command.Env = append(os.Environ(), "CONTAINERS_CONF="+p.config)
	out, err := p.w.Output(command)
	if err != nil {
		return "", said(out, err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1], nil
}

// Run is like Try, but must succeed.
func (p *Podman) Run(arguments ...string) string {
	p.w.t.Helper()
	out, err := p.Try(arguments...)
	if err != nil {
		p.w.t.Fatalf("podman %s: %v", strings.Join(arguments, " "), err)
	}
	return out
}

type podmanContainer struct {
	p   *Podman
	id  string
	pid int
}

// Create starts a container with further flags.
func (p *Podman) Create(s Spec, flags ...string) Container {
	p.w.t.Helper()
	// This process may not raise these limits. Without no-conmon, podman leaves
	// the cgroup PARENT/conmon behind.
	flags = append([]string{"run", "--detach", "--network", "none", "--name", s.Name, "--cgroup-parent", s.Parent, "--cgroups", "no-conmon",
		"--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"}, flags...)
	id := p.Run(append(flags, Image, "/bin/busybox", "sh", "-c", s.script())...)
	p.w.t.Cleanup(func() { _, _ = p.Try("rm", "--force", "--time", "0", id) })
	return podmanContainer{p, id, p.w.pid(p.Run("inspect", "--format", "{{.State.Pid}}", id))}
}

func (c podmanContainer) ID() string { return c.id }

func (c podmanContainer) PID() int { return c.pid }

func (c podmanContainer) Stop() error { return c.try("stop", "--time", "10", c.id) }

func (c podmanContainer) Reap() error { return c.try("wait", c.id) }

func (c podmanContainer) Remove() error { return c.try("rm", "--force", "--time", "0", c.id) }

func (c podmanContainer) try(arguments ...string) error {
	_, err := c.p.Try(arguments...)
	return err
}
