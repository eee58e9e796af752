package containertest

import (
	"os/exec"
	"strings"

	"github.com/daybook-project/daybook/internal/needs"
)

// Docker is a private dockerd of the test.
type Docker struct {
	w      *Workshop
	socket string
	// Log is the daemon's log file.
	Log string
}

// Image is the name of the containers' image.
const Image = "daybook-busybox"

// StartDocker starts a dockerd with the image.
func (w *Workshop) StartDocker() *Docker {
	w.t.Helper()
	for _, tool := range []string{"dockerd", "docker", "containerd", "ctr"} {
		needs.Tool(w.t, tool)
	}
	w.OwnsCgroup("/docker")
	d := &Docker{w: w, socket: "unix://" + w.Path("docker.sock")}
	d.Log = w.Start("dockerd", "--data-root", w.Path("data"), "--exec-root", w.Path("exec"), "--host", d.socket,
		"--pidfile", w.Path("docker.pid"), "--bridge=none", "--iptables=false", "--ip6tables=false")
	w.Await("dockerd answers", d.Log, func() bool {
		_, err := d.Try("version")
		return err == nil
	})
	d.Run("import", w.Image(), Image)
	return d
}

// In returns the daemon for a part of the test.
func (d *Docker) In(w *Workshop) *Docker { return &Docker{w, d.socket, d.Log} }

// Try runs the client and returns the last line of its output, after the
// warnings.
func (d *Docker) Try(arguments ...string) (string, error) {
	out, err := d.w.Output(exec.Command("docker", append([]string{"--host", d.socket}, arguments...)...))
	if err != nil {
		return "", said(out, err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1], nil
}

// Run is like Try, but must succeed.
func (d *Docker) Run(arguments ...string) string {
	d.w.t.Helper()
	out, err := d.Try(arguments...)
	if err != nil {
		d.w.t.Fatalf("docker %s: %v", strings.Join(arguments, " "), err)
	}
	return out
}

type dockerContainer struct {
	d   *Docker
	id  string
	pid int
}

// Start starts a container.
func (d *Docker) Start(s Spec) Container {
	d.w.t.Helper()
	if s.Source == "" {
		return d.Create(s)
	}
	return d.Create(s, "--volume", s.Source+":/data:rslave")
}

// Create starts a container with further flags, and without the source.
func (d *Docker) Create(s Spec, flags ...string) Container {
	d.w.t.Helper()
	if s.Parent != "" {
		flags = append(flags, "--cgroup-parent", s.Parent)
	}
	flags = append([]string{"run", "--detach", "--network", "none", "--name", s.Name}, flags...)
	id := d.Run(append(flags, Image, "/bin/busybox", "sh", "-c", s.script())...)
	c := dockerContainer{d, id, d.w.pid(d.Run("inspect", "--format", "{{.State.Pid}}", id))}
	d.w.t.Cleanup(func() { _, _ = d.Try("rm", "--force", id) })
	return c
}

func (c dockerContainer) ID() string { return c.id }

func (c dockerContainer) PID() int { return c.pid }

func (c dockerContainer) Stop() error { return c.try("stop", "--time", "10", c.id) }

func (c dockerContainer) Reap() error { return c.try("wait", c.id) }

func (c dockerContainer) Remove() error { return c.try("rm", "--force", c.id) }

func (c dockerContainer) try(arguments ...string) error {
	_, err := c.d.Try(arguments...)
	return err
}
