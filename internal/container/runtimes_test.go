package container

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/needs"
)

// The tests in this file start real containers and ask for the name of the
// cgroup that the kernel says they are in.

func (w *workshop) wants(r *Resolver, cgroupPath string, want Identity) {
	w.t.Helper()
	if got := r.Resolve(cgroupPath); got != want {
		w.t.Errorf("%s:\n got %+v\nwant %+v", cgroupPath, got, want)
	}
}

func TestRealRuncContainerIsNamed(t *testing.T) {
	w := newWorkshop(t)
	needs.Tool(t, "runc")
	rootfs := w.rootfs()
	root := w.path("runc-state")
	r := NewResolver(Config{RuncRoots: []string{root}, Refresh: time.Nanosecond})

	parent := "/" + w.name
	for _, c := range []struct{ id, cgroupPath string }{
		{w.name + "-own", parent + "/deep"}, // a path that says nothing
		{w.name + "-default", ""},           // runc's own choice
	} {
		bundle := w.path("bundle-" + c.id)
		if err := os.Mkdir(bundle, 0o755); err != nil {
			t.Fatal(err)
		}
		w.run("runc", "spec", "--bundle", bundle)
		editSpec(t, bundle+"/config.json", rootfs, c.cgroupPath)
		t.Cleanup(func() { w.output(exec.Command("runc", "--root", root, "delete", "--force", c.id)) })
		w.run("runc", "--root", root, "run", "--detach", "--bundle", bundle, "--pid-file", bundle+"/pid", c.id)
		pid, err := os.ReadFile(bundle + "/pid")
		if err != nil {
			t.Fatal(err)
		}
		got := w.cgroupOf(string(pid))
		if c.cgroupPath != "" && got != c.cgroupPath {
			t.Errorf("runc put it at %s, not at %s", got, c.cgroupPath)
		}
		w.wants(r, got, Identity{Runtime: Runc, ID: c.id, Name: c.id, Root: got})
	}
}

// editSpec lets runc's example run busybox without a terminal.
func editSpec(t *testing.T, file, rootfs, cgroupPath string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var spec map[string]any
	if err := json.Unmarshal(content, &spec); err != nil {
		t.Fatal(err)
	}
	process := spec["process"].(map[string]any)
	process["terminal"], process["args"] = false, []string{"/bin/busybox", "sleep", "600"}
	delete(process, "rlimits") // raising them asks for a capability
	spec["root"].(map[string]any)["path"] = rootfs
	if cgroupPath != "" {
		spec["linux"].(map[string]any)["cgroupsPath"] = cgroupPath
	}
	if content, err = json.Marshal(spec); err == nil {
		err = os.WriteFile(file, content, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRealDockerContainersAreNamed(t *testing.T) {
	w := newWorkshop(t)
	needs.Tool(t, "dockerd")
	needs.Tool(t, "docker")
	needs.Tool(t, "containerd")
	docker := w.startDocker()
	data := w.path("data")
	docker("import", w.image(), "daybook-busybox")
	r := NewResolver(Config{
		DockerRoots:      []string{data},
		ContainerdStates: []string{w.path("exec/containerd/daemon/io.containerd.runtime.v2.task")},
		RuncRoots:        []string{w.path("exec/runtime-runc/*")},
		Refresh:          time.Nanosecond,
	})
	start := func(name string, flags ...string) (id, cgroupPath string) {
		t.Helper()
		arguments := append([]string{"run", "--detach", "--network", "none", "--name", name}, flags...)
		id = docker(append(arguments, "daybook-busybox", "/bin/busybox", "sleep", "600")...)
		t.Cleanup(func() { docker("rm", "--force", id) })
		cgroupPath = w.cgroupOf(docker("inspect", "--format", "{{.State.Pid}}", id))
		return id, cgroupPath
	}

	w.ownsCgroup("/docker")
	first, at := start("daybook-test-db")
	w.wants(r, at, Identity{Runtime: Docker, ID: first, Name: "daybook-test-db", Root: at})
	w.wants(r, at+"/inner", Identity{Runtime: Docker, ID: first, Name: "daybook-test-db", Root: at})

	docker("rename", "daybook-test-db", "daybook-test-renamed")
	for range renameRounds + 1 {
		r.Resolve(at)
	}
	w.wants(r, at, Identity{Runtime: Docker, ID: first, Name: "daybook-test-renamed", Root: at})

	second, at := start("daybook-test-web", "--cgroup-parent", "/"+w.name)
	if !strings.HasPrefix(at, "/"+w.name+"/") {
		t.Errorf("docker put it at %s, not below /%s", at, w.name)
	}
	w.wants(r, at, Identity{Runtime: Docker, ID: second, Name: "daybook-test-web", Root: at})

	// the runtime is known without dockerd's files too, from containerd's
	noFiles := NewResolver(Config{DockerRoots: []string{}, ContainerdStates: r.config.ContainerdStates, RuncRoots: []string{}, StorageRoots: []string{}})
	w.wants(noFiles, at, Identity{Runtime: Docker, ID: second, Name: second[:shortDigits], Root: at})

	// dockerd's containerd runs containers for others as well
	w.containerdContainer(r)
}

// startDocker starts a dockerd of the test's own and gives its client.
func (w *workshop) startDocker() func(arguments ...string) string {
	w.t.Helper()
	socket := "unix://" + w.path("docker.sock")
	log := w.start("dockerd", "--data-root", w.path("data"), "--exec-root", w.path("exec"), "--host", socket,
		"--pidfile", w.path("docker.pid"), "--bridge=none", "--iptables=false", "--ip6tables=false")
	docker := func(arguments ...string) (string, error) {
		return w.output(exec.Command("docker", append([]string{"--host", socket}, arguments...)...))
	}
	w.await("dockerd answers", log, func() bool {
		_, err := docker("version")
		return err == nil
	})
	return func(arguments ...string) string {
		w.t.Helper()
		out, err := docker(arguments...)
		if err != nil {
			w.t.Fatalf("docker %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		return lines[len(lines)-1] // after the warnings
	}
}

func (w *workshop) containerdContainer(r *Resolver) {
	w.t.Helper()
	needs.Tool(w.t, "ctr")
	namespace, id := w.name, "daybook-test-ctr"
	ctr := func(arguments ...string) string {
		w.t.Helper()
		return w.run("ctr", append([]string{"--address", w.path("exec/containerd/containerd.sock"), "--namespace", namespace}, arguments...)...)
	}
	ctr("run", "--detach", "--null-io", "--rootfs", w.rootfs(), id, "/bin/busybox", "sleep", "600")
	w.t.Cleanup(func() {
		ctr("task", "delete", "--force", id)
		ctr("container", "delete", id)
	})
	pid := ""
	for line := range strings.SplitSeq(ctr("task", "list"), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == id {
			pid = fields[1]
		}
	}
	at := w.cgroupOf(pid)
	w.wants(r, at, Identity{Runtime: Containerd, ID: id, Name: id, Root: at, Namespace: namespace})
	if want := "/" + namespace + "/" + id; at != want {
		w.t.Errorf("containerd put it at %s, not at %s", at, want)
	}
}

func TestRealLXCContainerIsNamed(t *testing.T) {
	w := newWorkshop(t)
	for _, tool := range []string{"lxc-start", "lxc-stop", "lxc-info"} {
		needs.Tool(t, tool)
	}
	name := w.name
	config := filepath.Join(w.dir, "lxc.conf")
	content := "lxc.rootfs.path = dir:" + w.rootfs() + "\nlxc.uts.name = daybook\nlxc.net.0.type = empty\n" +
		"lxc.init.cmd = /bin/busybox sleep 600\nlxc.apparmor.profile = unconfined\nlxc.mount.auto = proc\n"
	if err := os.WriteFile(config, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	w.ownsCgroup("/lxc.pivot")
	lxcPath := w.path("lxc")
	if err := os.Mkdir(lxcPath, 0o755); err != nil {
		t.Fatal(err)
	}
	log := w.start("lxc-start", "--name", name, "--lxcpath", lxcPath, "--rcfile", config, "--foreground",
		"--logfile", w.path("lxc.debug"), "--logpriority", "INFO")
	t.Cleanup(func() { w.output(exec.Command("lxc-stop", "--kill", "--name", name, "--lxcpath", lxcPath)) })
	pid := ""
	w.await("the LXC container runs", log, func() bool {
		out, err := w.output(exec.Command("lxc-info", "--name", name, "--lxcpath", lxcPath, "--pid", "--no-humanize"))
		pid = strings.TrimSpace(out)
		return err == nil && pid != "" && pid != "-1"
	})
	at := w.cgroupOf(pid)
	r := NewResolver(Config{})
	w.wants(r, at, Identity{Runtime: LXC, ID: name, Name: name, Root: at})
	w.wants(r, at+"/system.slice/a.service", Identity{Runtime: LXC, ID: name, Name: name, Root: at})
}
