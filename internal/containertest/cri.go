package containertest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/daybook-project/daybook/internal/cri"
	"github.com/daybook-project/daybook/internal/needs"
)

// CRI is a private containerd with its Container Runtime Interface, as a kubelet uses it.
// There is no kubelet: tests create and remove the cgroups of pods as it does.
type CRI struct {
	w *Workshop
	// Client calls it.
	Client *cri.Client
	// Log is the daemon's log file.
	Log    string
	socket string
	daemon *Daemon
}

// CRIImage is the image of sandboxes and containers: a busybox.
const CRIImage = "localhost/daybook/pause:latest"

// CRIOptions choose how a containerd works for a kubelet. The zero value is one in the
// workshop, with the cgroupfs driver and without a network.
type CRIOptions struct {
	// Systemd chooses the systemd cgroup driver.
	Systemd bool
	// Socket is the path of its socket; "": in the workshop.
	Socket string
	// CNI is the directory of the configuration of networks; "": an empty one.
	CNI string
}

// StartCRI starts a containerd with the image. systemd chooses the systemd cgroup driver.
func (w *Workshop) StartCRI(systemd bool) *CRI { return w.StartCRIWith(CRIOptions{Systemd: systemd}) }

// StartCRIWith starts a containerd with the image.
func (w *Workshop) StartCRIWith(o CRIOptions) *CRI {
	w.t.Helper()
	for _, tool := range []string{"containerd", "ctr", "runc"} {
		needs.Tool(w.t, tool)
	}
	socket := o.Socket
	if socket == "" {
		socket = w.Path("cri.sock") // sockets have short paths
	}
	if o.CNI == "" {
		o.CNI = w.Path("cni")
	}
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = %q
[ttrpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_tcp_service = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = %v
        Root = %q
`, w.Path("cri-root"), w.Path("exec/containerd"), socket, socket+".ttrpc", CRIImage, o.CNI, o.Systemd, w.Path("runc-root"))
	if err := os.WriteFile(w.Path("containerd.toml"), []byte(config), 0o600); err != nil {
		w.t.Fatal(err)
	}
	c := &CRI{w: w, Client: cri.New(socket), socket: socket}
	c.Start()
	c.Import(c.image())
	w.t.Cleanup(c.RemoveAll)
	return c
}

// Start starts the daemon, also after Kill.
func (c *CRI) Start() {
	c.w.t.Helper()
	c.daemon = c.w.Spawn(exec.Command("containerd", "--config", c.w.Path("containerd.toml")))
	c.Log = c.daemon.Log
	c.w.Await("containerd answers", c.Log, func() bool {
		_, _, err := c.Client.Version(context.Background())
		return err == nil
	})
}

// Kill ends the daemon by SIGKILL; its containers go on.
func (c *CRI) Kill() { c.daemon.Kill() }

// Import adds the images of an archive, as for the kubelet.
func (c *CRI) Import(archive string) {
	c.w.t.Helper()
	c.w.Run("ctr", "--address", c.socket, "--namespace", "k8s.io", "images", "import", archive)
}

// In returns the daemon for a part of the test.
func (c *CRI) In(w *Workshop) *CRI { return &CRI{w, c.Client, c.Log, c.socket, c.daemon} }

// image makes an archive of an image of the OCI format.
func (c *CRI) image() string {
	w := c.w
	w.t.Helper()
	layer, err := os.ReadFile(w.Image())
	if err != nil {
		w.t.Fatal(err)
	}
	digest := func(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }
	object := func(value any) []byte {
		text, err := json.Marshal(value)
		if err != nil {
			w.t.Fatal(err)
		}
		return text
	}
	type values = map[string]any
	config := object(values{
		"architecture": "amd64", "os": "linux",
		"config": values{"Entrypoint": []string{"/bin/busybox", "sh", "-c", "trap 'exit 0' TERM; while :; do /bin/busybox sleep 3600 & wait; done"}},
		"rootfs": values{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
	part := func(kind string, content []byte) values {
		return values{"mediaType": kind, "digest": "sha256:" + digest(content), "size": len(content)}
	}
	manifest := object(values{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": part("application/vnd.oci.image.config.v1+json", config),
		"layers": []values{part("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	top := part("application/vnd.oci.image.manifest.v1+json", manifest)
	top["annotations"] = values{"io.containerd.image.name": CRIImage, "org.opencontainers.image.ref.name": "latest"}
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, file := range []struct {
		name    string
		content []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"blobs/sha256/" + digest(layer), layer},
		{"blobs/sha256/" + digest(config), config},
		{"blobs/sha256/" + digest(manifest), manifest},
		{"index.json", object(values{"schemaVersion": 2, "manifests": []values{top}})},
	} {
		err := archive.WriteHeader(&tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.content))})
		if err == nil {
			_, err = archive.Write(file.content)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		w.t.Fatal(err)
	}
	path := w.Path("pause.tar")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// PodSpec is a pod to start.
type PodSpec struct {
	Name, Namespace, UID string
	// Cgroup is the pod's cgroup as the kubelet passes it: a path, or with the systemd
	// driver the name of a slice.
	Cgroup      string
	Annotations map[string]string
	// Mounts are directories of the host, by the paths in the container.
	Mounts map[string]string
	Script string
	// Command is run instead of Script, with Environment.
	Command     []string
	Environment map[string]string
	// Host: privileged, with the host's process IDs.
	Host bool
}

// CRIPod is a running pod with one container.
type CRIPod struct {
	c *CRI
	// SandboxID and ContainerID are the runtime's names.
	SandboxID, ContainerID string
}

func (c *CRI) call(method string, request cri.Message) (id string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answer, err := c.Client.Call(ctx, method, request)
	if err != nil {
		return "", err
	}
	// The answers that matter have an ID as their first field.
	if field, kind, n := protowire.ConsumeTag(answer); n > 0 && field == 1 && kind == protowire.BytesType {
		text, _ := protowire.ConsumeBytes(answer[n:])
		id = string(text)
	}
	return id, nil
}

const nodeNamespace = 2 // NamespaceMode NODE

// StartPod starts a sandbox and a container in the host's network.
func (c *CRI) StartPod(s PodSpec) *CRIPod {
	c.w.t.Helper()
	namespaces, privileged := cri.Message(nil).Number(1, nodeNamespace), uint64(0)
	if s.Host {
		namespaces, privileged = namespaces.Number(2, nodeNamespace), 1
	}
	sandbox := cri.Message(nil).
		Inner(1, cri.Message(nil).Text(1, s.Name).Text(2, s.UID).Text(3, s.Namespace)).
		Text(3, c.w.Path("pod-logs")).
		Map(6, map[string]string{"io.kubernetes.pod.name": s.Name, "io.kubernetes.pod.namespace": s.Namespace, "io.kubernetes.pod.uid": s.UID}).
		Map(7, s.Annotations).
		Inner(8, cri.Message(nil).Text(1, s.Cgroup).Inner(2, cri.Message(nil).Inner(1, namespaces).Number(6, privileged)))
	p := &CRIPod{c: c}
	var err error
	if p.SandboxID, err = c.call("RunPodSandbox", cri.Message(nil).Inner(1, sandbox)); err != nil {
		log, _ := os.ReadFile(c.Log)
		c.w.t.Fatalf("RunPodSandbox: %v\n%s", err, log[max(0, len(log)-2000):])
	}
	script := s.Script
	if script == "" {
		script = Sleep
	}
	container := cri.Message(nil).
		Inner(1, cri.Message(nil).Text(1, "main")).
		Inner(2, cri.Message(nil).Text(1, CRIImage))
	command := s.Command
	if command == nil {
		command = []string{"/bin/busybox", "sh", "-c", script}
	}
	for _, word := range command {
		container = container.Text(3, word)
	}
	for key, value := range s.Environment {
		container = container.Inner(6, cri.Message(nil).Text(1, key).Text(2, value))
	}
	for at, source := range s.Mounts {
		container = container.Inner(7, cri.Message(nil).Text(1, at).Text(2, source))
	}
	container = container.Text(11, "main.log").
		Inner(15, cri.Message(nil).Inner(2, cri.Message(nil).Number(2, privileged).Inner(3, namespaces)))
	if p.ContainerID, err = c.call("CreateContainer", cri.Message(nil).Text(1, p.SandboxID).Inner(2, container).Inner(3, sandbox)); err != nil {
		c.w.t.Fatalf("CreateContainer: %v", err)
	}
	if _, err := c.call("StartContainer", cri.Message(nil).Text(1, p.ContainerID)); err != nil {
		c.w.t.Fatalf("StartContainer: %v", err)
	}
	return p
}

// StopContainer ends the container, as the kubelet does first; the pod's sandbox remains.
func (p *CRIPod) StopContainer() error {
	_, err := p.c.call("StopContainer", cri.Message(nil).Text(1, p.ContainerID).Number(2, 5))
	return err
}

// Kill ends the container by SIGKILL: the runtime kills all processes in its cgroup.
func (p *CRIPod) Kill() error {
	_, err := p.c.call("StopContainer", cri.Message(nil).Text(1, p.ContainerID))
	return err
}

// Stop ends the pod, as the kubelet does, and removes what the runtime has of it. The pod's
// own cgroup remains for the kubelet. Like the kubelet it tries again after an error: containerd
// refuses to stop a container that ends meanwhile ("ttrpc: closed").
func (p *CRIPod) Stop() (err error) {
	for attempt := range stopAttempts {
		time.Sleep(time.Duration(attempt) * time.Second)
		err = p.StopContainer()
		for _, method := range []string{"StopPodSandbox", "RemovePodSandbox"} {
			if err == nil {
				_, err = p.c.call(method, cri.Message(nil).Text(1, p.SandboxID))
			}
		}
		if err == nil {
			return nil
		}
	}
	return err
}

// stopAttempts bounds how often a pod is stopped.
const stopAttempts = 5

// RemoveAll ends and removes all pods.
func (c *CRI) RemoveAll() {
	sandboxes, err := c.Client.Sandboxes(context.Background())
	if err != nil {
		return // the workshop ends its processes
	}
	for _, s := range sandboxes {
		_, _ = c.call("StopPodSandbox", cri.Message(nil).Text(1, s.ID))
		_, _ = c.call("RemovePodSandbox", cri.Message(nil).Text(1, s.ID))
	}
}

// MakePodCgroup makes the cgroup of a pod in all hierarchies of v1, as the kubelet does,
// and records it, so that it is removed when the test is killed.
func (w *Workshop) MakePodCgroup(path string) {
	w.t.Helper()
	for at := path; at != "/"; at = filepath.Dir(at) {
		w.OwnsCgroup(at)
	}
	for _, dir := range hierarchies() {
		if err := os.MkdirAll(dir+path, 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
}

// RemovePodCgroup removes it as the kubelet does: the whole tree, again and again. It
// returns the last error if that takes longer than patience.
func RemovePodCgroup(path string, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		var failure error
		for _, dir := range hierarchies() {
			if err := removeTree(dir + path); err != nil {
				failure = err
			}
		}
		if failure == nil || time.Now().After(deadline) {
			return failure
		}
	}
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	err = os.Remove(dir)
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// hierarchies are the mount points of the hierarchies of cgroups.
func hierarchies() []string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}
	}
	all, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	for i, path := range all {
		all[i] = filepath.Dir(path)
	}
	return all
}
