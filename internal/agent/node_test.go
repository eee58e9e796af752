package agent

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/internal/cri"
)

// The labels of metrics do not depend on the cgroup driver.
func TestEachCgroupOfAPodHasTheLabelsOfThePod(t *testing.T) {
	none := []string{}
	a := &Agent{names: &Names{}, resolver: container.NewResolver(container.Config{
		DockerRoots: none, ContainerdStates: none, RuncRoots: none, StorageRoots: none, RootlessRoots: none, VolumePools: filepath.Join(t.TempDir(), "pools")})}
	sandbox, id := strings.Repeat("5", 64), strings.Repeat("6", 64)
	a.names.set([]cri.Sandbox{{ID: sandbox, UID: uidA, Namespace: "shop", Name: "db-0"}}, []cri.Container{{ID: id, SandboxID: sandbox, Name: "main"}})
	slice := "/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uidA, "-", "_") + ".slice"
	for at, want := range map[string][2]string{
		"/kubepods/pod" + uidA:                           {"/kubepods/pod" + uidA, "shop/db-0"},
		"/kubepods/pod" + uidA + "/journal-sda1":         {"/kubepods/pod" + uidA, "shop/db-0"},
		"/kubepods/pod" + uidA + "/" + id:                {"/kubepods/pod" + uidA + "/" + id, "shop/db-0/main"},
		"/kubepods/pod" + uidA + "/" + sandbox:           {"/kubepods/pod" + uidA + "/" + sandbox, "shop/db-0/POD"},
		slice:                                            {slice, "shop/db-0"},
		slice + "/cri-containerd-" + id + ".scope":       {slice + "/cri-containerd-" + id + ".scope", "shop/db-0/main"},
		slice + "/cri-containerd-" + id + ".scope/below": {slice + "/cri-containerd-" + id + ".scope", "shop/db-0/main"},
		slice + "/crio-" + sandbox + ".scope":            {slice + "/crio-" + sandbox + ".scope", "shop/db-0/POD"},
		slice + "/" + strings.TrimSuffix(path.Base(slice), ".slice") + `-journal\x2dsda1.slice`: {slice, "shop/db-0"},
	} {
		if top, name, runtime := a.Identify(at); top != want[0] || name != want[1] || runtime != "kubernetes" {
			t.Errorf("%s: %s, %s, %s; want %s", at, top, name, runtime, want)
		}
	}
}

func TestTheCgroupOfAPodIsSearchedBelowAnyRoot(t *testing.T) {
	slice := "pod" + strings.ReplaceAll(uidA, "-", "_") + ".slice"
	others := []string{"/", "/kubepods", "/kubepods/pod" + uidB, "/x/pod" + uidA, "/kubepods/burstable/pod" + uidA + "/container", "/kubepods.slice/kubepods-burstable.slice",
		"/other.slice/kubepods-" + slice, "/kubepods/gold/pod" + uidA, "/kubepods.slice/kubepods-gold.slice/kubepods-gold-" + slice}
	for _, c := range []struct{ at, class, root string }{
		{"/kubepods/pod" + uidA, Guaranteed, "/"},
		{"/kubepods/burstable/pod" + uidA, Burstable, "/"},
		{"/system.slice/kubepods/besteffort/pod" + uidA, BestEffort, "/system.slice"},
		{"/kubepods.slice/kubepods-" + slice, Guaranteed, "/"},
		{"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-" + slice, BestEffort, "/"},
		{"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-" + slice, Burstable, "/kubelet"},
		{"/a.slice/a-b.slice/a-b-kubepods.slice/a-b-kubepods-" + slice, Guaranteed, "/a/b"},
	} {
		var all []cgroup.Cgroup
		for _, at := range append(others, "/kubepods/pod"+uidB+"/k3d"+c.at, c.at) { // a kubelet in a pod has a pod of the same UID
			all = append(all, cgroup.Cgroup{Path: at})
		}
		if class, root, at := search(all, uidA); class != c.class || root != c.root || at != c.at {
			t.Errorf("%s: %s below %s at %s; want %s below %s", c.at, class, root, at, c.class, c.root)
		}
		if class, root, at := search(all[:len(others)], uidA); at != "" {
			t.Errorf("without it: %s below %s at %s", class, root, at)
		}
	}
}

// A node on which nothing is at its usual place: the kubelet's directory is a link, its root
// of cgroups is another, and the first of the usual sockets is that of a runtime without it.
func TestAnAgentFindsThePodsOfANodeThatIsSetUpOtherwise(t *testing.T) {
	r := newRig(t, false)
	d := r.disk("a")
	r.root = "/" + r.Name
	p := r.start("db", "burstable", d, nil)
	link := r.Path("kubelet-link")
	if err := os.Symlink(filepath.Base(r.config.KubeletDir), link); err != nil {
		t.Fatal(err)
	}
	dead := r.Path("dead.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: dead}), unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
	usual := cri.Sockets
	t.Cleanup(func() { cri.Sockets = usual })
	cri.Sockets = []string{dead, r.config.CRISocket}
	r.config.KubeletDir, r.config.CRISocket = link, ""
	a, stop := r.agent()
	r.await("the agent places the journal", func() bool { return p.has(d) })
	r.await("the agent reports it", func() bool {
		v := a.Report().Volumes
		return len(v) == 1 && v[0].Status.Placed
	})
	if v := a.Report().Volumes[0]; v.Placement.For() != "team/db volume pvc-db" || v.Placement.Pods[0].QoS != Burstable {
		t.Errorf("%s, %+v", v.Placement.For(), v.Placement.Pods)
	}
	p.stop()
	p.remove(podPatience)
	r.await("the agent releases the journal", func() bool { return d.at() == "/" })
	stop()
	r.wantReleased(d)
}

func TestTheKubeletsDirectoryIsKnownByItsPathOnTheHost(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(dir, "data/kubelet")
	if err := errors.Join(os.MkdirAll(target, 0o755), os.Symlink(target, filepath.Join(dir, "link")), os.Symlink("/data/kubelet", filepath.Join(dir, "kubelet"))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{target, filepath.Join(dir, "link")} {
		if got, err := hostPath(path); err != nil || got != target {
			t.Errorf("%s: %s, %v; want %s", path, got, err, target)
		}
	}
	// A link leads to a path on the host, also if the agent has another root.
	for _, path := range []string{"/kubelet", "kubelet", "/data/kubelet"} {
		if got, err := pathIn(dir, path); err != nil || got != target {
			t.Errorf("%s below %s: %s, %v; want %s", path, dir, got, err, target)
		}
	}
	if got, err := hostPath(filepath.Join(dir, "none")); err == nil {
		t.Error(got)
	}
}

// A node may have NVMe disks alone, and no loop device.
func TestTheNodesOfAnyBlockDeviceAreTheHosts(t *testing.T) {
	for _, c := range []struct {
		disks, nodes []string
		want         bool
	}{
		{nil, nil, true},
		{[]string{"nvme0n1", "nvme0n1p1"}, []string{"nvme0n1"}, true},
		{[]string{"xvda"}, []string{"xvda"}, true},
		{[]string{"cciss!c0d0"}, []string{"cciss/c0d0"}, true},
		{[]string{"sda"}, nil, false},
		{[]string{"sda"}, []string{"null"}, false},
	} {
		class, dev := t.TempDir(), t.TempDir()
		var failures []error
		for _, disk := range c.disks {
			failures = append(failures, os.Mkdir(filepath.Join(class, disk), 0o755))
		}
		for _, node := range c.nodes {
			at := filepath.Join(dev, node)
			failures = append(failures, os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink("/dev/null", at)) // a device, as good as any
		}
		// A file of the same name is no device.
		failures = append(failures, os.WriteFile(filepath.Join(dev, "sda"), nil, 0o600))
		if err := errors.Join(failures...); err != nil {
			t.Fatal(err)
		}
		if got := hasDevices(class, dev); got != c.want {
			t.Errorf("disks %q, nodes %q: %t, want %t", c.disks, c.nodes, got, c.want)
		}
	}
	if !hasDevices("/sys/class/block", "/dev") {
		t.Error("this host has none")
	}
	if hasDevices(filepath.Join(t.TempDir(), "none"), "/dev") {
		t.Error("without /sys")
	}
}
