package containertest

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/needs"
)

// Runc is runc without another runtime.
type Runc struct {
	w    *Workshop
	root string
}

// Runc prepares runc.
func (w *Workshop) Runc() *Runc {
	w.t.Helper()
	needs.Tool(w.t, "runc")
	return &Runc{w, w.Rootfs()}
}

// Root is runc's state directory.
func (r *Runc) Root() string { return r.w.Path("runc-state") }

type runcContainer struct {
	r   *Runc
	id  string
	pid int
}

func (r *Runc) try(arguments ...string) (string, error) {
	out, err := r.w.Output(exec.Command("runc", append([]string{"--root", r.Root()}, arguments...)...))
	// runc logs that a cgroup stays, but exits with 0.
	if err == nil && strings.Contains(out, "level=error") {
		err = errors.New("runc logged an error")
	}
	return out, said(out, err)
}

// Start starts a container.
func (r *Runc) Start(s Spec) Container {
	r.w.t.Helper()
	bundle := r.w.Path("bundle-" + s.Name)
	if err := os.Mkdir(bundle, 0o755); err != nil {
		r.w.t.Fatal(err)
	}
	r.w.Run("runc", "spec", "--bundle", bundle)
	if err := editSpec(bundle+"/config.json", r.root, s); err != nil {
		r.w.t.Fatal(err)
	}
	c := runcContainer{r: r, id: s.Name}
	r.w.t.Cleanup(func() { _ = c.Remove() })
	if _, err := r.try("run", "--detach", "--bundle", bundle, "--pid-file", bundle+"/pid", s.Name); err != nil {
		r.w.t.Fatalf("runc run: %v", err)
	}
	pid, err := os.ReadFile(bundle + "/pid")
	if err != nil {
		r.w.t.Fatal(err)
	}
	c.pid = r.w.pid(string(pid))
	return c
}

// editSpec changes runc's example to run the script without a terminal.
func editSpec(file, rootfs string, s Spec) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(content, &spec); err != nil {
		return err
	}
	process := spec["process"].(map[string]any)
	process["terminal"], process["args"] = false, []string{"/bin/busybox", "sh", "-c", s.script()}
	delete(process, "rlimits") // raising them needs a capability
	spec["root"].(map[string]any)["path"] = rootfs
	spec["root"].(map[string]any)["readonly"] = false
	if s.Source != "" {
		spec["mounts"] = append(spec["mounts"].([]any), map[string]any{
			"type": "bind", "source": s.Source, "destination": "/data", "options": []string{"rbind", "rw", "rslave"},
		})
	}
	if s.Parent != "" {
		s.Cgroup = s.Parent + "/" + s.Name
	}
	if s.Cgroup != "" {
		spec["linux"].(map[string]any)["cgroupsPath"] = s.Cgroup
	}
	if content, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}

func (c runcContainer) ID() string { return c.id }

func (c runcContainer) PID() int { return c.pid }

func (c runcContainer) Stop() error {
	if _, err := c.r.try("kill", c.id, "TERM"); err != nil {
		return err
	}
	return c.Reap()
}

// Reap deletes the container, which removes the cgroup.
func (c runcContainer) Reap() error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		out, err := c.r.try("delete", c.id)
		dying := strings.Contains(out, "is not stopped")
		if err == nil || !dying || time.Now().After(deadline) {
			return err
		}
	}
}

func (c runcContainer) Remove() error {
	out, err := c.r.try("delete", "--force", c.id)
	if err != nil && strings.Contains(out, "does not exist") {
		return nil
	}
	return err
}
