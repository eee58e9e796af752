package container

import (
	"path"
	"strings"
	"testing"
)

const (
	id    = "4f2e8a1c9b7d6053f1e2d3c4b5a697887766554433221100ffeeddccbbaa9988"
	other = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	short = "4f2e8a1c9b7d"
	uid   = "8dbc5577-d0e2-4706-8787-57d52c03ddf2"
	uid_  = "8dbc5577_d0e2_4706_8787_57d52c03ddf2"
)

func TestIdentifyByPath(t *testing.T) {
	for _, c := range []struct {
		path string
		want Identity
	}{
		// Docker: cgroupfs, systemd, a parent of its own, nested
		{"/docker/" + id, Identity{Runtime: Docker, ID: id, Name: short, Root: "/docker/" + id}},
		{"/docker/" + id + "/init.scope", Identity{Runtime: Docker, ID: id, Name: short, Root: "/docker/" + id}},
		{"/docker/" + id + "/docker/" + other, Identity{Runtime: Docker, ID: id, Name: short, Root: "/docker/" + id}},
		{"/docker/" + id + "/kubelet/kubepods/pod" + uid + "/" + other, Identity{Runtime: Docker, ID: id, Name: short, Root: "/docker/" + id}},
		{"/system.slice/docker-" + id + ".scope", Identity{Runtime: Docker, ID: id, Name: short, Root: "/system.slice/docker-" + id + ".scope"}},
		{"/user.slice/user-1000.slice/user@1000.service/app.slice/docker-" + id + ".scope/x",
			Identity{Runtime: Docker, ID: id, Name: short, Root: "/user.slice/user-1000.slice/user@1000.service/app.slice/docker-" + id + ".scope"}},
		{"/x/" + id, Identity{Runtime: OCI, ID: id, Name: short, Root: "/x/" + id}},
		{"/ecs/5d5a2d9f/" + id, Identity{Runtime: OCI, ID: id, Name: short, Root: "/ecs/5d5a2d9f/" + id}},
		{"/" + id, Identity{Runtime: OCI, ID: id, Name: short, Root: "/" + id}},
		{"/actions_job/" + id, Identity{Runtime: OCI, ID: id, Name: short, Root: "/actions_job/" + id}},

		// containerd and CRI-O in Kubernetes
		{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uid_ + ".slice/cri-containerd-" + id + ".scope",
			Identity{Runtime: Containerd, ID: id, Name: short, PodUID: uid,
				Root: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uid_ + ".slice/cri-containerd-" + id + ".scope"}},
		{"/kubepods.slice/kubepods-pod" + uid_ + ".slice/crio-" + id + ".scope/container",
			Identity{Runtime: CRIO, ID: id, Name: short, PodUID: uid, Root: "/kubepods.slice/kubepods-pod" + uid_ + ".slice/crio-" + id + ".scope"}},
		{"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + uid_ + ".slice/docker-" + id + ".scope",
			Identity{Runtime: Docker, ID: id, Name: short, PodUID: uid,
				Root: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + uid_ + ".slice/docker-" + id + ".scope"}},
		{"/system.slice/containerd.service/kubepods-burstable-pod" + uid_ + ".slice:cri-containerd:" + id,
			Identity{Runtime: Containerd, ID: id, Name: short, PodUID: uid,
				Root: "/system.slice/containerd.service/kubepods-burstable-pod" + uid_ + ".slice:cri-containerd:" + id}},
		{"/kubepods-besteffort-pod" + uid_ + ".slice:cri-containerd:" + id,
			Identity{Runtime: Containerd, ID: id, Name: short, PodUID: uid, Root: "/kubepods-besteffort-pod" + uid_ + ".slice:cri-containerd:" + id}},
		{"/kubepods/besteffort/pod" + uid + "/" + id,
			Identity{Runtime: Kubernetes, ID: id, Name: short, PodUID: uid, Root: "/kubepods/besteffort/pod" + uid + "/" + id}},
		{"/kubepods/pod" + uid + "/" + id + "/sub",
			Identity{Runtime: Kubernetes, ID: id, Name: short, PodUID: uid, Root: "/kubepods/pod" + uid + "/" + id}},
		{"/kubepods/burstable/pod" + uid + "/crio-" + id,
			Identity{Runtime: CRIO, ID: id, Name: short, PodUID: uid, Root: "/kubepods/burstable/pod" + uid + "/crio-" + id}},
		{"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + uid_ + ".slice/cri-containerd-" + id + ".scope",
			Identity{Runtime: Containerd, ID: id, Name: short, PodUID: uid,
				Root: "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + uid_ + ".slice/cri-containerd-" + id + ".scope"}},
		{"/kubepods/burstable/pod" + uid, Identity{Runtime: Kubernetes, ID: uid, PodUID: uid, Name: "pod " + uid, Root: "/kubepods/burstable/pod" + uid}},
		{"/kubepods.slice/kubepods-pod" + uid_ + ".slice",
			Identity{Runtime: Kubernetes, ID: uid, PodUID: uid, Name: "pod " + uid, Root: "/kubepods.slice/kubepods-pod" + uid_ + ".slice"}},
		{"/kubepods/burstable", Identity{Name: "/kubepods/burstable", Root: "/kubepods/burstable"}},

		// containerd alone, nerdctl
		{"/k8s.io/" + id, Identity{Runtime: OCI, ID: id, Name: short, Root: "/k8s.io/" + id}},
		{"/system.slice/nerdctl-" + id + ".scope", Identity{Runtime: Containerd, ID: id, Name: short, Root: "/system.slice/nerdctl-" + id + ".scope"}},
		{"/default/c1", Identity{Name: "/default/c1", Root: "/default/c1"}}, // known only from containerd's state

		// Podman
		{"/libpod_parent/libpod-" + id, Identity{Runtime: Podman, ID: id, Name: short, Root: "/libpod_parent/libpod-" + id}},
		{"/machine.slice/libpod-" + id + ".scope/container", Identity{Runtime: Podman, ID: id, Name: short, Root: "/machine.slice/libpod-" + id + ".scope"}},
		{"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope",
			Identity{Runtime: Podman, ID: id, Name: short, Root: "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope"}},
		{"/machine.slice/machine-libpod_pod_" + other + ".slice/libpod-" + id + ".scope",
			Identity{Runtime: Podman, ID: id, Name: short, PodUID: other, Root: "/machine.slice/machine-libpod_pod_" + other + ".slice/libpod-" + id + ".scope"}},
		{"/machine.slice/libpod-conmon-" + id + ".scope",
			Identity{Runtime: Systemd, ID: "libpod-conmon-" + id + ".scope", Name: "libpod-conmon-" + id + ".scope", Root: "/machine.slice/libpod-conmon-" + id + ".scope"}},
		{"/libpod_parent/conmon", Identity{Name: "/libpod_parent/conmon", Root: "/libpod_parent/conmon"}},

		// LXC and LXD
		{"/lxc.payload.web", Identity{Runtime: LXC, ID: "web", Name: "web", Root: "/lxc.payload.web"}},
		{"/lxc.payload.web/system.slice/nginx.service", Identity{Runtime: LXC, ID: "web", Name: "web", Root: "/lxc.payload.web"}},
		{"/lxc.payload/web/init.scope", Identity{Runtime: LXC, ID: "web", Name: "web", Root: "/lxc.payload/web"}},
		{"/lxc/101/ns/init.scope", Identity{Runtime: LXC, ID: "101", Name: "101", Root: "/lxc/101"}},
		{"/lxc.monitor.web", Identity{Name: "/lxc.monitor.web", Root: "/lxc.monitor.web"}},

		// systemd-nspawn and libvirt
		{"/machine.slice/machine-web.scope", Identity{Runtime: Machine, ID: "web", Name: "web", Root: "/machine.slice/machine-web.scope"}},
		{`/machine.slice/machine-deb\x2d12.scope/payload/system.slice/nginx.service`,
			Identity{Runtime: Machine, ID: "deb-12", Name: "deb-12", Root: `/machine.slice/machine-deb\x2d12.scope`}},
		{"/machine.slice/systemd-nspawn@web.service/payload/init.scope", Identity{Runtime: Machine, ID: "web", Name: "web", Root: "/machine.slice/systemd-nspawn@web.service"}},
		{`/machine.slice/machine-qemu\x2d1\x2dvm.scope/libvirt/emulator`,
			Identity{Runtime: Machine, ID: "qemu-1-vm", Name: "qemu-1-vm", Root: `/machine.slice/machine-qemu\x2d1\x2dvm.scope`}},
		{`/machine.slice/machine-a\x2.scope`, Identity{Runtime: Machine, ID: `a\x2`, Name: `a\x2`, Root: `/machine.slice/machine-a\x2.scope`}},
		{"/machine.slice/machine-.scope", Identity{Runtime: Systemd, ID: "machine-.scope", Name: "machine-.scope", Root: "/machine.slice/machine-.scope"}},
		{"/system.slice/machine-a.scope", Identity{Runtime: Systemd, ID: "machine-a.scope", Name: "machine-a.scope", Root: "/system.slice/machine-a.scope"}},

		// systemd
		{"/system.slice/postgresql@15-main.service", Identity{Runtime: Systemd, ID: "postgresql@15-main.service", Name: "postgresql@15-main.service", Root: "/system.slice/postgresql@15-main.service"}},
		{"/system.slice/foo.service/worker", Identity{Runtime: Systemd, ID: "foo.service", Name: "foo.service", Root: "/system.slice/foo.service"}},
		{"/user.slice/user-1000.slice/session-3.scope", Identity{Runtime: Systemd, ID: "session-3.scope", Name: "session-3.scope", Root: "/user.slice/user-1000.slice/session-3.scope"}},
		{"/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.service",
			Identity{Runtime: Systemd, ID: "app-x.service", Name: "app-x.service", Root: "/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.service"}},
		{"/system.slice", Identity{Runtime: Systemd, ID: "system.slice", Name: "system.slice", Root: "/system.slice"}},
		{"/init.scope", Identity{Runtime: Systemd, ID: "init.scope", Name: "init.scope", Root: "/init.scope"}},

		// plain
		{"/", Identity{Name: "/", Root: "/"}},
		{"", Identity{Name: "/", Root: "/"}},
		{"/ca", Identity{Name: "/ca", Root: "/ca"}},
		{"/docker", Identity{Name: "/docker", Root: "/docker"}},
		{"/docker/" + id[:63], Identity{Name: "/docker/" + id[:63], Root: "/docker/" + id[:63]}},
		{"/docker/" + strings.ToUpper(id), Identity{Name: "/docker/" + strings.ToUpper(id), Root: "/docker/" + strings.ToUpper(id)}},
		{"/mine.slice/a/b", Identity{Name: "/mine.slice/a/b", Root: "/mine.slice/a/b"}},
		{"/a\x1b[2J\nb", Identity{Name: "/a\ufffd[2J\ufffdb", Root: "/a\x1b[2J\nb"}},
		{"/lxc", Identity{Name: "/lxc", Root: "/lxc"}},
		{"/podcast/" + uid, Identity{Name: "/podcast/" + uid, Root: "/podcast/" + uid}},
	} {
		if got := Identify(c.path); got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.path, got, c.want)
		}
	}
}

func TestOnlyContainersAreContainers(t *testing.T) {
	for p, want := range map[string]bool{
		"/docker/" + id: true, "/x/" + id: true, "/lxc.payload.a": true, "/kubepods/pod" + uid + "/" + id: true,
		"/kubepods/pod" + uid: false, "/system.slice/a.service": false, "/ca": false, "/": false,
	} {
		if got := Identify(p).IsContainer(); got != want {
			t.Errorf("%s: got %v", p, got)
		}
	}
}

// A pod has the same label with the cgroupfs driver and with the systemd driver.
func TestTheRuntimeOfPodsIsKubernetes(t *testing.T) {
	for p, want := range map[string]string{
		"/kubepods/burstable/pod" + uid:                                                                  Kubernetes,
		"/kubepods/burstable/pod" + uid + "/" + id:                                                       Kubernetes,
		"/kubepods/burstable/pod" + uid + "/crio-" + id:                                                  Kubernetes,
		"/kubepods.slice/kubepods-pod" + uid_ + ".slice":                                                 Kubernetes,
		"/kubepods.slice/kubepods-pod" + uid_ + ".slice/cri-containerd-" + id + ".scope":                 Kubernetes,
		"/kubepods.slice/kubepods-pod" + uid_ + ".slice/docker-" + id + ".scope":                         Kubernetes,
		"/system.slice/containerd.service/kubepods-burstable-pod" + uid_ + ".slice:cri-containerd:" + id: Kubernetes,
		"/system.slice/docker-" + id + ".scope":                                                          Docker,
		"/machine.slice/machine-libpod_pod_" + other + ".slice/libpod-" + id + ".scope":                  Podman,
		"/system.slice/a.service":                                                                        Systemd,
		"/ca":                                                                                            Plain,
	} {
		if got := Identify(p).RuntimeLabel(); got != want {
			t.Errorf("%s: %q; want %q", p, got, want)
		}
	}
	// Also where only the state of the runtime says that it is a container of a pod.
	h := newHost(t)
	h.put("containerd/k8s.io/"+id+"/config.json", `{"annotations":{"io.kubernetes.cri.container-name":"nginx","io.kubernetes.cri.sandbox-name":"web-0",
		"io.kubernetes.cri.sandbox-namespace":"shop","io.kubernetes.cri.sandbox-uid":"`+uid+`"}}`)
	if got := h.Resolve("/k8s.io/" + id); got.RuntimeLabel() != Kubernetes || got.Runtime != Containerd {
		t.Errorf("%+v has the label %q", got, got.RuntimeLabel())
	}
}

func FuzzIdentify(f *testing.F) {
	for _, p := range []string{
		"/docker/" + id, "/system.slice/docker-" + id + ".scope", "/lxc/a/b", "/lxc.payload.x", "//..//x", "/a:b:" + id,
		"/kubepods/besteffort/pod" + uid + "/" + id, "/kubepods-pod" + uid_ + ".slice/x", "/machine.slice/libpod-" + id + ".scope/container", "/-" + id,
	} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		got := Identify(p)
		clean := path.Clean("/" + p)
		if got.Root != clean && !strings.HasPrefix(clean, got.Root+"/") {
			t.Fatalf("%q: root %q is not above it", p, got.Root)
		}
		if got.Name == "" || got.Name != printable(got.Name) {
			t.Fatalf("%q has the name %q", p, got.Name)
		}
		if again := Identify(got.Root); again != got {
			t.Fatalf("%q is %+v, its root %+v", p, got, again)
		}
		if (got.ID == "") != (got.Runtime == Plain) {
			t.Fatalf("%q: %+v", p, got)
		}
		if got.IsContainer() && Identify(clean+"/child") != got {
			t.Fatalf("a child of %q is not the same container", p)
		}
	})
}
