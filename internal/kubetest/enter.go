package kubetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/needs"
)

// ProgramsVariable in the environment is the directory of the programs that scripts/kubernetes
// builds. Without it these tests are skipped.
const ProgramsVariable = "DAYBOOK_KUBERNETES"

// insideVariable is the name of the test that runs in its namespaces.
const insideVariable = "DAYBOOK_KUBETEST_INSIDE"

// Programs skips the test if the programs of a node are not built.
func Programs(t testing.TB) string {
	t.Helper()
	path := os.Getenv(ProgramsVariable)
	if path == "" {
		t.Skipf("make k8s-test or k8s-guest-test runs it (%s is the directory that scripts/kubernetes prints)", ProgramsVariable)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s: %v", ProgramsVariable, err)
	}
	return path
}

// private are the directories of a node that its programs know by fixed paths. In the test
// they are directories of the workshop, mounted over those of the host.
var private = []string{"/var/lib/kubelet", "/var/lib/daybook", "/var/lib/cni", "/var/log", "/run/containerd", "/run/netns"}

// tunables are what the kubelet would set for the whole host. In the test it reads these
// values, and so writes nothing.
var tunables = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// address is the node's: a kubelet refuses one of the loopback range. It is on the loopback
// device of the test's network, and from a range for documentation.
const address = "192.0.2.1"

// serviceAddress is that of the service of the API server, which listens there itself:
// there is no kube-proxy.
const serviceAddress = "10.96.0.1"

// Enter runs a test again, in a process with network and mount namespaces of its own.
func Enter(t *testing.T, inside func(t *testing.T, w *containertest.Workshop)) {
	t.Helper()
	if os.Getenv(insideVariable) != t.Name() {
		needs.Root(t)
		oneNode(t)
		for _, dir := range private {
			makeDirectory(t, dir)
		}
	}
	enter(t, unix.CLONE_NEWNS|unix.CLONE_NEWNET, func() {
		w := containertest.New(t)
		prepare(t, w)
		inside(t, w)
	})
}

// enter runs a test again, in a process with namespaces of its own.
func enter(t *testing.T, namespaces uintptr, inside func()) {
	t.Helper()
	if os.Getenv(insideVariable) == t.Name() {
		inside()
		return
	}
	needs.Root(t)
	needs.Tool(t, "ip")
	var names []string
	for name := range strings.SplitSeq(t.Name(), "/") {
		names = append(names, "^"+regexp.QuoteMeta(name)+"$")
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+strings.Join(names, "/"), "-test.v", "-test.count=1", "-test.timeout=0")
	command.Env = append(os.Environ(), insideVariable+"="+t.Name())
	command.Stdout, command.Stderr = t.Output(), t.Output()
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: namespaces, Pdeathsig: unix.SIGKILL}
	if err := command.Run(); err != nil {
		t.Errorf("in its namespaces: %v", err)
	}
}

// oneNode waits until no other process runs a node. Its directories are on the host's: the
// kernel takes a mount away in each namespace when the directory below it is removed.
func oneNode(t *testing.T) {
	t.Helper()
	at, err := os.Open("/var/lib")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { at.Close() })
	for {
		err := unix.Flock(int(at.Fd()), unix.LOCK_EX)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}

// makeDirectory makes a directory on which to mount, and removes what it has made.
func makeDirectory(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); err == nil {
		return
	}
	if parent := filepath.Dir(dir); parent != "/" {
		makeDirectory(t, parent)
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) }) // only if it is empty
}

// prepareNetwork gives the loopback device the addresses of a node.
func prepareNetwork(w *containertest.Workshop) {
	w.Run("ip", "link", "set", "lo", "up")
	for _, at := range []string{address, serviceAddress} {
		w.Run("ip", "address", "add", at+"/32", "dev", "lo")
	}
}

// prepare makes the network and the mounts of a node.
func prepare(t *testing.T, w *containertest.Workshop) {
	t.Helper()
	prepareNetwork(w)
	for _, dir := range private {
		own := w.Path("node", strings.ReplaceAll(strings.Trim(dir, "/"), "/", "-"))
		if err := os.MkdirAll(own, 0o755); err != nil {
			t.Fatal(err)
		}
		mount(t, own, dir)
		// As on a host with systemd: pods see what is mounted later.
		if err := unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range tunables {
		file := w.Path("node", strings.ReplaceAll(name, "/", "-"))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		mount(t, file, filepath.Join("/proc/sys", name))
	}
}

func mount(t *testing.T, from, to string) {
	t.Helper()
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(fmt.Errorf("cannot mount %s on %s: %w", from, to, err))
	}
}
