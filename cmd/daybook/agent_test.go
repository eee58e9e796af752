package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

// agentNode is a node with a pod that writes to a volume, and the configuration of an agent.
type agentNode struct {
	w                 *containertest.Workshop
	fs                ext4test.FileSystem
	uid, cgroup, file string
	pod               *containertest.CRIPod
}

func newAgentNode(t *testing.T) *agentNode {
	t.Helper()
	w := containertest.New(t)
	fs := ext4test.New(t, ext4test.Options{})
	c := w.StartCRI(false)
	n := &agentNode{w: w, fs: fs, uid: "0f0f0f0f-1111-2222-3333-444444444444"}
	n.cgroup = "/kubepods/burstable/pod" + n.uid
	w.MakePodCgroup(n.cgroup)
	kubelet, state := w.Path("kubelet"), w.Path("state")
	mount := filepath.Join(kubelet, "pods", n.uid, "volumes/kubernetes.io~local-volume/pv-db")
	if err := os.MkdirAll(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(fs.Dir, mount, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ext4.Unmount(context.Background(), mount); err != nil {
			t.Error(err)
		}
	})
	n.pod = c.StartPod(containertest.PodSpec{
		Name: "db-0", Namespace: "shop", UID: n.uid, Cgroup: n.cgroup, Mounts: map[string]string{"/data": mount},
		Script: `trap 'exit 0' TERM; n=0; while :; do n=$((n+1)); /bin/busybox mkdir /data/$n; echo x | /bin/busybox dd of=/data/$n/x conv=fsync 2>/dev/null; /bin/busybox sleep 0.1; done`,
	})
	n.file = w.Path("agent.yaml")
	config := fmt.Sprintf("kubelet_dir: %s\nstate_dir: %s\ncri_socket: %s\nmetrics: 127.0.0.1:0\ninterval: 200ms\n", kubelet, state, w.Path("cri.sock"))
	if err := os.WriteFile(n.file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := execute(t, "agent", "--check-config", n.file); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return n
}

// control adds a section control of these disks to the configuration.
func (n *agentNode) control(t *testing.T, devices string) {
	t.Helper()
	text, err := os.ReadFile(n.file)
	if err != nil {
		t.Fatal(err)
	}
	text = fmt.Appendf(text, "control: {devices: [%s], state_dir: %s, tunables: none}\n", devices, n.w.Path("state"))
	if err := os.WriteFile(n.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// awaitLogged waits until the log of an agent has the text. The agent looks for disks every 10 s.
func awaitLogged(t *testing.T, daemon *containertest.Daemon, text string) {
	t.Helper()
	awaittest.Until(t, awaittest.Patience, "in the log: "+text, func() bool {
		logged, _ := os.ReadFile(daemon.Log)
		return strings.Contains(string(logged), text)
	})
}

// serving waits until an agent serves, and returns its address and what gets a path of it.
func (n *agentNode) serving(daemon *containertest.Daemon) (address string, get func(path string) string) {
	n.w.Await("the agent serves metrics", daemon.Log, func() bool {
		text, _ := os.ReadFile(daemon.Log)
		found := regexp.MustCompile(`serving metrics" address=(\S+)`).FindSubmatch(text)
		if found == nil {
			return false
		}
		address = string(found[1])
		return true
	})
	return address, func(path string) string {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return string(text)
	}
}

// end ends the agent, and then the pod.
func (n *agentNode) end(t *testing.T, daemon *containertest.Daemon) {
	t.Helper()
	daemon.Stop()
	if err := n.pod.Stop(); err != nil {
		t.Error(err)
	}
	// A cgroup is busy until the last process of the pod is gone, as the kubelet knows. A
	// thread of a journal that the agent left in it would stay.
	if err := containertest.RemovePodCgroup(n.cgroup, awaittest.Patience); err != nil {
		t.Errorf("the agent has ended, and the pod's cgroup cannot be removed: %v", err)
	}
}

// The command as in the DaemonSet, with a pod of a real container runtime: the journal of its
// volume is placed, and metrics have the names of the pod.
func TestAgentServesTheMetricsOfPodsByTheirNames(t *testing.T) {
	n := newAgentNode(t)
	w, fs, uid := n.w, n.fs, n.uid
	command := exec.Command(os.Args[0], "agent", "--config", n.file)
	command.Env = append(os.Environ(), commandVariable+"=1")
	daemon := w.Spawn(command)
	_, get := n.serving(daemon)
	for _, want := range []string{
		`daybook_agent_volume_placed\{device="` + fs.Disk.Name + `",namespace="shop",placement="pod",pod="db-0",volume="pv-db"\} 1`,
		`daybook_agent_container_info\{container="shop/db-0/main",container_name="main",namespace="shop",pod="db-0",pod_uid="` + uid + `"\} 1`,
		`daybook_agent_container_info\{container="shop/db-0",container_name="",namespace="shop",pod="db-0",pod_uid="` + uid + `"\} 1`,
		`daybook_agent_attributing 1`,
		`daybook_journal_bytes_total\{cgroup="[^"]*` + uid + `[^"]*",container="shop/db-0/main",device="` + fs.Disk.Name + `",runtime="kubernetes"\} [1-9]`,
	} {
		pattern := regexp.MustCompile(want)
		w.Await("a metric "+want, daemon.Log, func() bool { return pattern.MatchString(get("/metrics")) })
	}
	if health := get("/healthz"); !strings.HasPrefix(health, "ok") {
		t.Error(health)
	}
	// A second agent on this host is refused.
	second := exec.Command(os.Args[0], "agent", "--config", n.file)
	second.Env = append(os.Environ(), commandVariable+"=1")
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), "is the agent of this host already") {
		t.Errorf("a second agent: %v: %s", err, out)
	}
	n.end(t, daemon)
}

// A configuration is for all nodes of a cluster, and the kernel of one may load no BPF programs.
func TestAgentPlacesJournalsOnANodeThatLoadsNoBPFPrograms(t *testing.T) {
	setpriv := needs.Tool(t, "setpriv")
	n := newAgentNode(t)
	disk := n.w.Path("disk")
	n.control(t, disk)
	command := exec.Command(setpriv, "--bounding-set", "-bpf,-perfmon,-sys_admin", os.Args[0], "agent", "--config", n.file)
	command.Env = append(os.Environ(), commandVariable+"=1")
	daemon := n.w.Spawn(command)
	_, get := n.serving(daemon)
	for _, want := range []string{
		`daybook_agent_volume_placed\{device="` + n.fs.Disk.Name + `",namespace="shop",placement="pod",pod="db-0",volume="pv-db"\} 1`,
		`daybook_agent_attributing 0`,
	} {
		pattern := regexp.MustCompile(want)
		n.w.Await("a metric "+want, daemon.Log, func() bool { return pattern.MatchString(get("/metrics")) })
	}
	awaitLogged(t, daemon, "cannot attribute I/O to containers")
	// Without BPF programs it cannot control the disk that comes, but it goes on.
	if err := os.Symlink(n.fs.Dir, disk); err != nil {
		t.Fatal(err)
	}
	awaitLogged(t, daemon, "has all disks to control now")
	for _, want := range []string{`daybook_agent_volume_placed\{.*\} 1`, `daybook_agent_attributing 0`} {
		if metrics := get("/metrics"); !regexp.MustCompile(want).MatchString(metrics) {
			t.Errorf("not %s: %s", want, metrics)
		}
	}
	if text, err := os.ReadFile(daemon.Log); err != nil || strings.Count(string(text), "cannot attribute I/O to containers") != 1 {
		t.Errorf("the reason is not in the log once: %v, %s", err, text)
	}
	// It waits for no sample: the kubelet would kill an agent that misses them.
	awaittest.Until(t, awaittest.Patience, "it is healthy", func() bool { return get("/healthz") == "ok\n" })
	n.end(t, daemon)
}

// A configuration is for all nodes of a cluster, and one may lack a disk of control, or get it later.
func TestAgentWorksOnANodeThatLacksADiskOfControl(t *testing.T) {
	n := newAgentNode(t)
	disk := n.w.Path("disk")
	n.control(t, "daybook-none, "+disk)
	command := exec.Command(os.Args[0], "agent", "--config", n.file)
	command.Env = append(os.Environ(), commandVariable+"=1")
	daemon := n.w.Spawn(command)
	_, get := n.serving(daemon)
	controlled := `daybook_control_limits{device="` + n.fs.Disk.Name + `"}`
	for _, want := range []string{
		`daybook_agent_volume_placed\{device="` + n.fs.Disk.Name + `",namespace="shop",placement="pod",pod="db-0",volume="pv-db"\} 1`,
		`daybook_agent_attributing 1`,
		`daybook_journal_bytes_total\{cgroup="[^"]*` + n.uid + `[^"]*",container="shop/db-0/main",device="` + n.fs.Disk.Name + `",runtime="kubernetes"\} [1-9]`,
	} {
		pattern := regexp.MustCompile(want)
		n.w.Await("a metric "+want, daemon.Log, func() bool { return pattern.MatchString(get("/metrics")) })
	}
	if metrics := get("/metrics"); strings.Contains(metrics, controlled) {
		t.Error("a disk is controlled that the configuration does not name")
	}
	if logged, err := os.ReadFile(daemon.Log); err != nil || !strings.Contains(string(logged), "lacks disks to control") {
		t.Errorf("%v: %s", err, logged)
	}
	// The name is of the volume's disk from now on.
	if err := os.Symlink(n.fs.Dir, disk); err != nil {
		t.Fatal(err)
	}
	awaittest.Until(t, awaittest.Patience, "the disk is controlled", func() bool { return strings.Contains(get("/metrics"), controlled) })
	n.end(t, daemon)
}

// attachedDisk is a disk without a file system.
func attachedDisk(t *testing.T) blockdev.Loop {
	t.Helper()
	needs.Root(t)
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(image, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = loop.Detach(context.Background()) })
	return loop
}

// The last disk of control may be pulled out of a node, and put in again.
func TestAgentGoesOnWhenTheLastDiskOfControlIsGone(t *testing.T) {
	n := newAgentNode(t)
	disk, pulled := n.w.Path("disk"), attachedDisk(t)
	if err := os.Symlink(pulled.Node(), disk); err != nil {
		t.Fatal(err)
	}
	n.control(t, disk)
	command := exec.Command(os.Args[0], "agent", "--config", n.file)
	command.Env = append(os.Environ(), commandVariable+"=1")
	daemon := n.w.Spawn(command)
	_, get := n.serving(daemon)
	controlled := func(device string) string { return `daybook_control_limits{device="` + device + `"}` }
	awaittest.Until(t, awaittest.Patience, "the disk is controlled", func() bool { return strings.Contains(get("/metrics"), controlled(pulled.Name)) })
	// The name goes first: another test may attach a file to the device at once.
	if err := errors.Join(os.Remove(disk), pulled.Detach(t.Context())); err != nil {
		t.Fatal(err)
	}
	awaitLogged(t, daemon, "lacks disks to control")
	placed := regexp.MustCompile(`daybook_agent_volume_placed\{device="` + n.fs.Disk.Name + `",namespace="shop",placement="pod",pod="db-0",volume="pv-db"\} 1`)
	if metrics := get("/metrics"); !placed.MatchString(metrics) {
		t.Errorf("the journal is not placed: %s", metrics)
	}
	if err := os.Symlink(n.fs.Dir, disk); err != nil {
		t.Fatal(err)
	}
	awaittest.Until(t, awaittest.Patience, "the disk is controlled", func() bool { return strings.Contains(get("/metrics"), controlled(n.fs.Disk.Name)) })
	n.end(t, daemon)
}

func TestADiskWithoutAMediumIsAbsent(t *testing.T) {
	needs.Root(t)
	controls, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer controls.Close()
	number := 200_000 + os.Getpid()%100_000
	needs.That(t, unix.IoctlSetInt(int(controls.Fd()), unix.LOOP_CTL_ADD, number) == nil, "a new loop device")
	defer func() {
		if err := unix.IoctlSetInt(int(controls.Fd()), unix.LOOP_CTL_REMOVE, number); err != nil {
			t.Error(err)
		}
	}()
	empty, full := fmt.Sprintf("loop%d", number), attachedDisk(t).Name
	if here, absent := present([]string{empty, full, "daybook-none"}); !slices.Equal(here, []string{full}) || !slices.Equal(absent, []string{empty, "daybook-none"}) {
		t.Errorf("here %q, absent %q", here, absent)
	}
}

// One disk of several may be pulled out, and put in again, while the others are controlled.
func TestADiskThatComesBackIsAwaited(t *testing.T) {
	loop, name := attachedDisk(t), filepath.Join(t.TempDir(), "disk")
	if err := os.Symlink(loop.Node(), name); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	const pause = 20 * time.Millisecond
	watch := &diskWatch{observers: &observers{}, pause: pause}
	go func() { ended <- watch.await(t.Context(), []string{loop.Name, name}, nil) }()
	stays := func(what string) {
		t.Helper()
		select {
		case err := <-ended:
			t.Fatalf("%s: %v", what, err)
		case <-time.After(25 * pause):
		}
	}
	stays("all are here")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	stays("one is gone")
	if err := os.Symlink(loop.Node(), name); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, errLookAgain) {
			t.Error(err)
		}
	case <-time.After(awaittest.Patience):
		t.Error("the disk that came back is not noticed")
	}
}

// The label runtime of a pod does not depend on the cgroup driver.
func TestSamplesNameThePodsOfBothCgroupDriversAlike(t *testing.T) {
	none := []string{}
	naming := containers{container.NewResolver(container.Config{
		DockerRoots: none, ContainerdStates: none, RuncRoots: none, StorageRoots: none, RootlessRoots: none, VolumePools: filepath.Join(t.TempDir(), "pools")})}
	const uid = "8dbc5577-d0e2-4706-8787-57d52c03ddf2"
	id := strings.Repeat("5", 64)
	for at, want := range map[string]string{
		"/kubepods/pod" + uid + "/" + id: "kubernetes",
		"/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-containerd-" + id + ".scope": "kubernetes",
		"/system.slice/docker-" + id + ".scope": "docker",
	} {
		if top, _, runtime := naming.Identify(at); top != at || runtime != want {
			t.Errorf("%s: %s, %s; want %s", at, top, runtime, want)
		}
	}
}

func TestAgentChecksTheAddressOfItsMetrics(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.yaml")
	for text, want := range map[string]string{
		"metrics: 9435x\n":  file + `:1: metrics: "9435x" has no port number`,
		"metrics: \"\"\n":   "no errors",
		"metrics: 9435\n":   "no errors",
		`metrics: "*:9435"`: "no errors",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := execute(t, "agent", "--check-config", file)
		if !strings.Contains(out, want) || (err == nil) != (want == "no errors") {
			t.Errorf("%q: %v, %s; want %q", text, err, out, want)
		}
	}
}
