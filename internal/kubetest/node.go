package kubetest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/containertest"
)

// Name is that of the node.
const Name = "node"

// The programs listen on addresses of the test's own network.
const (
	etcdAddress = "http://127.0.0.1:2379"
	apiAddress  = "https://127.0.0.1:443"
)

// Patience is how long to wait for something that a node does.
const Patience = 3 * time.Minute

// Node is a running node, and its control plane.
type Node struct {
	API *API
	CRI *containertest.CRI
	// CgroupRoot is that of the kubelet.
	CgroupRoot string
	// Socket is that of the container runtime.
	Socket string

	t, whole *testing.T
	w        *containertest.Workshop
	programs string
	tokens   map[string]string
	running  map[string]*containertest.Daemon
	// systemd: the node is a guest with the systemd driver, without a control plane ([Join]).
	systemd bool
}

// Start starts a node. The test is in [Enter].
func Start(t *testing.T, w *containertest.Workshop) *Node {
	t.Helper()
	n := newNode(t, w)
	w.MakePodCgroup(n.CgroupRoot)
	t.Cleanup(n.unmount)
	n.writeNetwork()
	n.CRI = w.StartCRIWith(containertest.CRIOptions{Socket: n.Socket, CNI: w.Path("cni")})
	n.writeKeys()
	n.API = newAPI(apiAddress, n.tokens["admin"])
	n.startControlPlane()
	n.writeKubelet()
	n.startKubelet()
	n.AwaitReady()
	return n
}

func newNode(t *testing.T, w *containertest.Workshop) *Node {
	t.Helper()
	// The workshop finds the processes of the runtime by its directory in their arguments.
	return &Node{CgroupRoot: "/" + w.Name, Socket: filepath.Join("/run/containerd", w.Path("cri.sock")), t: t, whole: t, w: w, programs: Programs(t), tokens: map[string]string{}, running: map[string]*containertest.Daemon{}}
}

// Emulated reports whether the node's processor is emulated: it is a guest.
func (n *Node) Emulated() bool { return n.systemd }

func (n *Node) patience() time.Duration {
	if n.Emulated() {
		return guestPatience
	}
	return Patience
}

// In returns the node for a part of the test: failures belong to that part. What is started
// anew goes on until the end of the whole test.
func (n *Node) In(t *testing.T) *Node {
	part := *n
	part.t = t
	return &part
}

// startControlPlane starts the programs of the control plane, and waits for its API.
func (n *Node) startControlPlane() {
	n.t.Helper()
	w := n.w
	n.spawn("etcd", "--name=node", "--data-dir="+w.Path("etcd"), "--listen-client-urls="+etcdAddress, "--advertise-client-urls="+etcdAddress,
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=node=http://127.0.0.1:2380",
		"--unsafe-no-fsync")
	n.spawn("kube-apiserver", "--etcd-servers="+etcdAddress, "--bind-address=0.0.0.0", "--secure-port=443", "--advertise-address="+address,
		"--endpoint-reconciler-type=none", "--cert-dir="+w.Path("api-certificates"), "--service-cluster-ip-range=10.96.0.0/24",
		"--service-account-issuer="+apiAddress, "--service-account-key-file="+w.Path("accounts.pub"), "--service-account-signing-key-file="+w.Path("accounts.key"),
		"--token-auth-file="+w.Path("tokens.csv"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true")
	n.Await("the API server is ready", func() bool {
		_, err := n.API.Get("/readyz")
		return err == nil
	})
	n.spawn("kube-controller-manager", "--kubeconfig="+n.kubeconfig("controller-manager"), "--bind-address=127.0.0.1", "--leader-elect=false",
		"--service-account-private-key-file="+w.Path("accounts.key"), "--root-ca-file="+w.Path("api-certificates/apiserver.crt"),
		"--node-monitor-grace-period="+(5*time.Minute).String())
	n.spawn("kube-scheduler", "--kubeconfig="+n.kubeconfig("scheduler"), "--bind-address=127.0.0.1", "--leader-elect=false")
}

func (n *Node) startKubelet() {
	n.t.Helper()
	n.spawn("kubelet", "--kubeconfig="+n.kubeconfig("kubelet"), "--config="+n.w.Path("kubelet.json"), "--hostname-override="+Name, "--node-ip="+address,
		"--cert-dir="+n.w.Path("kubelet-certificates"))
}

// spawn starts a program of the node, which the test ends.
func (n *Node) spawn(name string, arguments ...string) {
	n.t.Helper()
	n.running[name] = n.w.Spawn(exec.Command(filepath.Join(n.programs, name), arguments...))
}

// AwaitReady waits until the node is ready for pods.
func (n *Node) AwaitReady() {
	n.t.Helper()
	n.Await("the node is ready", func() bool {
		node, err := n.API.Get("/api/v1/nodes/" + Name)
		return err == nil && Condition(node, "Ready")
	})
}

// Await waits until a condition holds; otherwise it fails the test with the ends of all logs.
func (n *Node) Await(what string, holds func() bool) {
	n.t.Helper()
	for deadline := time.Now().Add(n.patience()); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("%s: not within %v\n%s", what, n.patience(), n.Logs())
		}
	}
}

// Logs are the ends of the logs of all programs.
func (n *Node) Logs() string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(n.running)) {
		text, _ := os.ReadFile(n.running[name].Log)
		fmt.Fprintf(&out, "--- %s\n%s\n", name, text[max(0, len(text)-3000):])
	}
	return out.String()
}

// KillKubelet ends the kubelet and the container runtime by SIGKILL. Pods go on.
func (n *Node) KillKubelet() {
	n.running["kubelet"].Kill()
	n.CRI.Kill()
}

// StartKubelet starts them again.
func (n *Node) StartKubelet() {
	n.t.Helper()
	n.CRI.Start()
	n.whole.Cleanup(n.CRI.RemoveAll)
	n.startKubelet()
}

// Restart does to the node what a power cut does to all but the kernel: it ends all
// processes, and takes away what does not outlive a boot: mounts, cgroups, and files of /run. Then
// it starts the node again.
func (n *Node) Restart() {
	n.t.Helper()
	n.w.Crash()
	for _, daemon := range n.running {
		daemon.Kill() // and wait: a process that is ending still has its sockets
	}
	n.unmount()
	for _, dir := range []string{n.w.Path("exec"), n.w.Path("runc-root"), filepath.Dir(n.Socket), "/run/containerd/s"} {
		if err := os.RemoveAll(dir); err != nil {
			n.t.Error(err)
		}
	}
	n.w.MakePodCgroup(n.CgroupRoot)
	n.startControlPlane()
	n.StartKubelet()
	n.AwaitReady()
}

func (n *Node) write(name string, content []byte) {
	n.t.Helper()
	if err := os.WriteFile(n.w.Path(name), content, 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *Node) writeJSON(name string, value any) {
	n.t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		n.t.Fatal(err)
	}
	n.write(name, text)
}

// writeNetwork gives pods a network: each has a pair of devices to the node's.
func (n *Node) writeNetwork() {
	n.t.Helper()
	if err := os.MkdirAll(n.w.Path("cni"), 0o755); err != nil {
		n.t.Fatal(err)
	}
	n.writeJSON("cni/10-node.conflist", Object{"cniVersion": "0.4.0", "name": "node", "plugins": []Object{{
		"type": "ptp", "ipam": Object{"type": "host-local", "dataDir": n.w.Path("addresses"), "ranges": [][]Object{{{"subnet": "198.51.100.0/24"}}}, "routes": []Object{{"dst": "0.0.0.0/0"}}},
	}}})
}

// writeKeys makes the key of service accounts, and a token for each program.
func (n *Node) writeKeys() {
	n.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		n.t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		n.t.Fatal(err)
	}
	n.write("accounts.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	n.write("accounts.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	var lines strings.Builder
	for _, user := range []struct{ name, full, group string }{
		{"admin", "admin", "system:masters"}, {"controller-manager", "system:kube-controller-manager", "system:masters"},
		{"scheduler", "system:kube-scheduler", "system:masters"}, {"kubelet", "system:node:" + Name, "system:nodes"},
	} {
		secret := make([]byte, 16)
		_, _ = rand.Read(secret) // it never fails
		n.tokens[user.name] = hex.EncodeToString(secret)
		fmt.Fprintf(&lines, "%s,%s,%s,%s\n", n.tokens[user.name], user.full, user.name, user.group)
	}
	n.write("tokens.csv", []byte(lines.String()))
}

func (n *Node) kubeconfig(name string) string {
	n.t.Helper()
	file := "kubeconfig-" + name
	n.writeJSON(file, Object{"apiVersion": "v1", "kind": "Config", "current-context": "node",
		"clusters": []Object{{"name": "node", "cluster": Object{"server": apiAddress, "insecure-skip-tls-verify": true}}},
		"users":    []Object{{"name": name, "user": Object{"token": n.tokens[name]}}},
		"contexts": []Object{{"name": "node", "context": Object{"cluster": "node", "user": name}}}})
	return n.w.Path(file)
}

// writeKubelet writes the kubelet's configuration: its usual one, but that it removes
// nothing for want of space, because the disk is that of the host.
func (n *Node) writeKubelet() {
	n.t.Helper()
	config := Object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": "127.0.0.1", "healthzPort": 0, "failCgroupV1": false, "failSwapOn": false,
		"authentication": Object{"anonymous": Object{"enabled": false}, "webhook": Object{"enabled": false}},
		"authorization":  Object{"mode": "AlwaysAllow"},
		"cgroupDriver":   "cgroupfs", "cgroupRoot": n.CgroupRoot, "enforceNodeAllocatable": []string{"none"},
		"containerRuntimeEndpoint": "unix://" + n.Socket, "resolvConf": "", "makeIPTablesUtilChains": false,
		"volumePluginDir": n.w.Path("volume-plugins"), "maxOpenFiles": 20000, "oomScoreAdj": 0, "maxPods": 250,
		"imageGCHighThresholdPercent": 100, "localStorageCapacityIsolation": false,
		"evictionHard": Object{"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
	}
	if n.systemd {
		// The default of enforceNodeAllocatable: the pods together have a limit of memory. Calls
		// of the runtime take long in a guest.
		config["cgroupDriver"], config["failCgroupV1"], config["runtimeRequestTimeout"] = "systemd", true, guestPatience.String()
		delete(config, "enforceNodeAllocatable")
	}
	n.writeJSON("kubelet.json", config)
}

// unmount unmounts what the kubelet and the runtime have mounted, the last mount first.
func (n *Node) unmount() {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.t.Error(err)
	}
	for _, line := range slices.Backward(strings.Split(string(text), "\n")) {
		fields := strings.Fields(line)
		if len(fields) > 4 && (strings.HasPrefix(fields[4], "/var/lib/kubelet/") || strings.HasPrefix(fields[4], n.w.Path("exec")+"/")) {
			if err := unix.Unmount(fields[4], 0); err != nil && !errors.Is(err, unix.EINVAL) {
				n.t.Errorf("%s: %v", fields[4], err)
			}
		}
	}
	if n.systemd {
		return // the cgroups of the guest end with it
	}
	// Its cgroups: the programs of pods have ended.
	if err := containertest.RemovePodCgroup(n.CgroupRoot, 10*time.Second); err != nil {
		n.t.Error(err)
	}
}
