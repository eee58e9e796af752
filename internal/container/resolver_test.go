package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// host is a resolver on state directories made by the test, with its own clock.
type host struct {
	*Resolver
	t     *testing.T
	dir   string
	clock time.Time
}

func newHost(t *testing.T) *host {
	h := &host{t: t, dir: t.TempDir(), clock: time.Unix(1000, 0)}
	h.Resolver = NewResolver(Config{
		DockerRoots:      []string{h.dir + "/docker"},
		ContainerdStates: []string{h.dir + "/containerd"},
		RuncRoots:        []string{h.dir + "/runc", h.dir + "/ns/*"},
		StorageRoots:     []string{h.dir + "/storage"},
		RootlessRoots:    []string{h.dir + "/home/*/storage"},
	})
	h.now = func() time.Time { return h.clock }
	return h
}

func (h *host) put(name, content string) {
	h.t.Helper()
	file := filepath.Join(h.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) later(rounds int) {
	for range rounds {
		h.clock = h.clock.Add(5 * time.Second)
		h.Resolve("/")
	}
}

func (h *host) wants(path string, want Identity) {
	h.t.Helper()
	if got := h.Resolve(path); got != want {
		h.t.Errorf("%s:\n got %+v\nwant %+v", path, got, want)
	}
}

func TestDockerNameAndRename(t *testing.T) {
	h := newHost(t)
	root := "/x/" + id
	h.wants(root, Identity{Runtime: OCI, ID: id, Name: short, Root: root})
	h.put("docker/containers/"+id+"/config.v2.json", `{"Name":"/db","Config":{"Labels":{"a":"b"}},"State":{}}`)
	h.later(1)
	h.wants(root+"/inner", Identity{Runtime: Docker, ID: id, Name: "db", Root: root})
	h.put("docker/containers/"+id+"/config.v2.json", `{"Name":"/database"}`)
	for range renameRounds {
		h.later(1)
		h.Resolve(root + "/inner")
	}
	h.wants(root+"/inner", Identity{Runtime: Docker, ID: id, Name: "database", Root: root})
}

func TestKubernetesNames(t *testing.T) {
	h := newHost(t)
	pod := "/kubepods/burstable/pod" + uid
	want := Identity{Runtime: Containerd, ID: id, Name: "shop/web-0/nginx", Root: pod + "/" + id, Pod: "web-0", PodUID: uid, Namespace: "shop"}
	h.put("containerd/k8s.io/"+id+"/config.json", `{"ociVersion":"1.0","annotations":{"io.kubernetes.cri.container-name":"nginx","io.kubernetes.cri.container-type":"container",
		"io.kubernetes.cri.sandbox-name":"web-0","io.kubernetes.cri.sandbox-namespace":"shop","io.kubernetes.cri.sandbox-uid":"`+uid+`"}}`)
	h.put("containerd/k8s.io/"+other+"/config.json", `{"annotations":{"io.kubernetes.cri.container-type":"sandbox",
		"io.kubernetes.cri.sandbox-name":"web-0","io.kubernetes.cri.sandbox-namespace":"shop"}}`)
	h.wants(pod, Identity{Runtime: Kubernetes, ID: uid, PodUID: uid, Name: "pod " + uid, Root: pod})
	h.wants(pod+"/"+id, want)
	sandbox := want
	sandbox.ID, sandbox.Name, sandbox.Root = other, "shop/web-0/POD", pod+"/"+other
	h.wants(pod+"/"+other, sandbox)
	h.later(1) // the pod's name came from its containers
	h.wants(pod, Identity{Runtime: Kubernetes, ID: uid, PodUID: uid, Pod: "web-0", Namespace: "shop", Name: "shop/web-0", Root: pod})

	// dockershim, and CRI-O by containers/storage
	h.put("docker/containers/"+id+"/config.v2.json", `{"Name":"/k8s_nginx_web-0_shop_`+uid+`_3"}`)
	scope := "/kubepods.slice/kubepods-pod" + uid_ + ".slice/docker-" + id + ".scope"
	want.Runtime, want.Root = Docker, scope
	h.wants(scope, want)
	h.put("storage/overlay-containers/containers.json", `[{"id":"`+id+`","names":["k8s_nginx_web-0_shop_`+uid+`_0"]}]`)
	h.later(1)
	scope = "/kubepods.slice/kubepods-pod" + uid_ + ".slice/crio-" + id + ".scope"
	want.Runtime, want.Root = CRIO, scope
	h.wants(scope, want)
}

func TestPodmanNames(t *testing.T) {
	h := newHost(t)
	h.put("storage/overlay-containers/containers.json", `[{"id":"`+id+`","names":["db"],"image":"x"},{"id":"short","names":["y"]}]`)
	h.put("storage/overlay-containers/volatile-containers.json", `[{"id":"`+other+`","names":["tmp"]}]`)
	h.wants("/libpod_parent/libpod-"+id, Identity{Runtime: Podman, ID: id, Name: "db", Root: "/libpod_parent/libpod-" + id})
	h.wants("/mine/"+other, Identity{Runtime: Podman, ID: other, Name: "tmp", Root: "/mine/" + other})
}

// The names of a user's Podman count for this user's containers only.
func TestRootlessPodmanNames(t *testing.T) {
	h := newHost(t)
	const file = "home/x/storage/overlay-containers/containers.json"
	h.put(file, `[{"id":"`+id+`","names":["db"]},{"id":"`+other+`","names":["k8s_a/b_c_d_e_f"]}]`)
	user := fmt.Sprintf("user-%d", os.Getuid())
	own := "/user.slice/" + user + ".slice/user@" + strconv.Itoa(os.Getuid()) + ".service/user.slice/"
	h.wants(own+"libpod-"+id+".scope/container", Identity{Runtime: Podman, ID: id, Name: user + "/db", Root: own + "libpod-" + id + ".scope"})
	h.wants(own+"libpod-"+other+".scope", Identity{Runtime: Podman, ID: other, Name: user + "/k8s_a_b_c_d_e_f", Root: own + "libpod-" + other + ".scope"})
	for _, foreign := range []string{"/user.slice/user-4242.slice/user@4242.service/user.slice/", "/machine.slice/"} {
		h.wants(foreign+"libpod-"+id+".scope", Identity{Runtime: Podman, ID: id, Name: short, Root: foreign + "libpod-" + id + ".scope"})
	}
}

func TestContainerdAndRuncAtPathsThatNameNoRuntime(t *testing.T) {
	h := newHost(t)
	h.wants("/default/c1", Identity{Name: "/default/c1", Root: "/default/c1"})
	h.put("containerd/default/c1/config.json", `{"annotations":{}}`)
	h.put("containerd/default/"+id+"/config.json", `{"annotations":{"nerdctl/name":"db"}}`)
	h.put("runc/box/state.json", `{"id":"box","cgroup_paths":{"blkio":"/sys/fs/cgroup/blkio/mine/deep","cpu":"/sys/fs/cgroup/cpu/other"}}`)
	h.put("ns/a/unified/state.json", `{"id":"unified","cgroup_paths":{"":"/sys/fs/cgroup/system.slice/runc-unified.scope"}}`)
	h.put("runc/all/state.json", `{"id":"all","cgroup_paths":{"blkio":"/sys/fs/cgroup/blkio"}}`)
	h.later(1)
	h.wants("/default/c1/sub", Identity{Runtime: Containerd, ID: "c1", Name: "c1", Root: "/default/c1", Namespace: "default"})
	h.wants("/default/"+id, Identity{Runtime: Containerd, ID: id, Name: "db", Root: "/default/" + id, Namespace: "default"})
	h.wants("/mine/deep/sub", Identity{Runtime: Runc, ID: "box", Name: "box", Root: "/mine/deep"})
	h.wants("/mine", Identity{Name: "/mine", Root: "/mine"})
	h.wants("/system.slice/runc-unified.scope", Identity{Runtime: Runc, ID: "unified", Name: "unified", Root: "/system.slice/runc-unified.scope"})
	if err := os.RemoveAll(h.dir + "/runc/box"); err != nil {
		t.Fatal(err)
	}
	h.later(1)
	h.wants("/mine/deep", Identity{Name: "/mine/deep", Root: "/mine/deep"})
}

func TestInvalidStateIsTolerated(t *testing.T) {
	root := "/docker/" + id
	byPath := Identity{Runtime: Docker, ID: id, Name: short, Root: root}
	file := "docker/containers/" + id + "/config.v2.json"
	for name, prepare := range map[string]func(h *host){
		"truncated":   func(h *host) { h.put(file, `{"Name":"/db`) },
		"empty":       func(h *host) { h.put(file, "") },
		"other types": func(h *host) { h.put(file, `{"Name":7,"Config":[]}`) },
		"array":       func(h *host) { h.put(file, `[]`) },
		"deep":        func(h *host) { h.put(file, `{"Name":`+strings.Repeat("[", 1<<20)) },
		"huge": func(h *host) {
			h.put(file, `{"Name":"/db"}`)
			if err := os.Truncate(h.dir+"/"+file, maxStateBytes+1); err != nil {
				h.t.Fatal(err)
			}
		},
		"pipe": func(h *host) {
			h.put("docker/containers/"+id+"/x", "")
			if err := syscall.Mkfifo(h.dir+"/"+file, 0o644); err != nil {
				h.t.Fatal(err)
			}
		},
		"symbolic link": func(h *host) {
			h.put("elsewhere", `{"Name":"/db"}`)
			h.put("docker/containers/"+id+"/x", "")
			if err := os.Symlink(h.dir+"/elsewhere", h.dir+"/"+file); err != nil {
				h.t.Fatal(err)
			}
		},
		"directory": func(h *host) { h.put(file+"/x", "") },
		"garbage in the others": func(h *host) {
			h.put("storage/overlay-containers/containers.json", `[{"id":`)
			h.put("containerd/moby/"+id+"/config.json", "\x00")
			h.put("containerd/file", "")
			h.put("runc/"+id+"/state.json", `{"cgroup_paths":{"blkio":"/etc/../../x"}}`)
		},
	} {
		h := newHost(t)
		prepare(h)
		h.wants(root, byPath)
		h.later(3)
		h.wants(root, byPath)
		if name == "truncated" { // written to its end at last
			h.put(file, `{"Name":"/db"}`)
			h.later(1)
			byName := byPath
			byName.Name = "db"
			h.wants(root, byName)
		}
	}
}

func TestNamesAreFitForATerminal(t *testing.T) {
	h := newHost(t)
	h.put("docker/containers/"+id+"/config.v2.json", `{"Name":"/a\u001b[2Jb\nc\u202ed`+strings.Repeat("x", 1000)+`"}`)
	got := h.Resolve("/docker/" + id).Name
	if strings.ContainsAny(got, "\x1b\n\u202e") || len([]rune(got)) > maxNameRunes || !strings.HasPrefix(got, "a\ufffd[2Jb\ufffdc\ufffdd") {
		t.Errorf("got %q", got)
	}
}

func TestCacheForgetsUnusedPaths(t *testing.T) {
	h := newHost(t)
	for i := range 1000 {
		h.put(fmt.Sprintf("docker/containers/%064x/config.v2.json", i), `{"Name":"/a"}`)
		h.Resolve(fmt.Sprintf("/docker/%064x", i))
	}
	h.later(4)
	if len(h.cache) > 1 || len(h.sources.docker.known) != 0 {
		t.Errorf("%d paths and %d containers are kept", len(h.cache), len(h.sources.docker.known))
	}
}

func TestWithoutStateThePathIdentifies(t *testing.T) {
	r := NewResolver(Config{DockerRoots: []string{}, ContainerdStates: []string{}, RuncRoots: []string{}, StorageRoots: []string{}})
	for _, p := range []string{"/docker/" + id, "/lxc.payload.a/b", "/ca", "/", "/system.slice/a.service", "/a/" + id} {
		if got, want := r.Resolve(p), Identify(p); got != want {
			t.Errorf("%s: got %+v, want %+v", p, got, want)
		}
	}
}

func FuzzState(f *testing.F) {
	f.Add(`{"Name":"/db","Config":{"Labels":{"io.kubernetes.pod.name":"p"}}}`)
	f.Add(`{"annotations":{"io.kubernetes.cri.sandbox-name":"web-0"}}`)
	f.Add(`{"id":"box","cgroup_paths":{"blkio":"/sys/fs/cgroup/blkio/mine"}}`)
	f.Add(`[{"id":"` + id + `","names":["k8s_a_b_c_d_e"]}]`)
	f.Fuzz(func(t *testing.T, content string) {
		h := newHost(t)
		h.put("docker/containers/"+id+"/config.v2.json", content)
		h.put("containerd/default/c1/config.json", content)
		h.put("runc/box/state.json", content)
		h.put("storage/overlay-containers/containers.json", content)
		for _, p := range []string{"/docker/" + id, "/default/c1", "/mine/deep", "/x/" + id, "/libpod_parent/libpod-" + id} {
			got := h.Resolve(p)
			if got.Name != clean(got.Name) || got.Name == "" || !strings.HasPrefix(p, got.Root) {
				t.Fatalf("%s: %+v from %q", p, got, content)
			}
		}
	})
}

// BenchmarkResolve is one interval with 500 containers and 500 plain cgroups,
// with the state read again.
func BenchmarkResolve(b *testing.B) {
	dir := b.TempDir()
	r := NewResolver(Config{DockerRoots: []string{dir}})
	var paths []string
	for i := range 500 {
		containerID := fmt.Sprintf("%064x", i)
		if err := os.MkdirAll(dir+"/containers/"+containerID, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(dir+"/containers/"+containerID+"/config.v2.json", []byte(`{"Name":"/a"}`), 0o644); err != nil {
			b.Fatal(err)
		}
		paths = append(paths, "/docker/"+containerID, fmt.Sprintf("/plain/group-%d", i))
	}
	clock := time.Now()
	r.now = func() time.Time { return clock }
	b.ReportAllocs()
	for b.Loop() {
		clock = clock.Add(r.config.Refresh)
		for _, p := range paths {
			r.Resolve(p)
		}
	}
}

// A user owns /run/user/UID, and can make there what blocks a reader.
func TestADirectoryOfAUserCannotBlock(t *testing.T) {
	h := newHost(t)
	h.put("ns/x", "")
	if err := os.Remove(h.dir + "/ns/x"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(h.dir+"/ns/x", 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.wants("/a", Identity{Name: "/a", Root: "/a"})
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for a writer of a named pipe")
	}
}

// A user's runc says which cgroups its containers have. It counts only below the slice of that user.
func TestAUsersRuncNamesOnlyThatUsersCgroups(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("want root: the files are given to a user")
	}
	h := newHost(t)
	own := "/user.slice/user-4242.slice/user@4242.service/box"
	for id, at := range map[string]string{"box": own, "db": "/system.slice", "web": "/user.slice/user-42.slice/x"} {
		h.put("ns/4242/"+id+"/state.json", `{"id":"`+id+`","cgroup_paths":{"":"/sys/fs/cgroup`+at+`"}}`)
	}
	if err := os.Chown(h.dir+"/ns/4242", 4242, 4242); err != nil {
		t.Fatal(err)
	}
	h.wants(own+"/sub", Identity{Runtime: Runc, ID: "box", Name: "user-4242/box", Root: own})
	const service = "/system.slice/postgresql.service"
	h.wants(service, Identity{Runtime: Systemd, ID: "postgresql.service", Name: "postgresql.service", Root: service})
	h.wants("/user.slice/user-42.slice/x", Identity{Name: "/user.slice/user-42.slice/x", Root: "/user.slice/user-42.slice/x"})
}

// A user may make any cgroup below the own slice, also one that looks like a container of root: with
// the ID of one, which all can read, or with a name at will.
func TestAUserCannotTakeTheNameOfAContainer(t *testing.T) {
	h := newHost(t)
	h.put("docker/containers/"+id+"/config.v2.json", `{"Name":"/db"}`)
	h.put("storage/overlay-containers/containers.json", `[{"id":"`+id+`","names":["db"]}]`)
	h.put("containerd/default/"+id+"/config.json", `{"annotations":{"nerdctl/name":"db"}}`)
	const own = "/user.slice/user-4242.slice/user@4242.service/"
	for scope, runtime := range map[string]string{"docker-": Docker, "libpod-": Podman, "nerdctl-": Containerd, "x-": OCI} {
		root := own + scope + id + ".scope"
		h.wants(root+"/inner", Identity{Runtime: runtime, ID: id, Name: short, Root: root})
	}
	h.wants(own+"lxc.payload.db", Identity{Runtime: LXC, ID: "db", Name: "user-4242/db", Root: own + "lxc.payload.db"})
	h.wants(own+"lxc/db", Identity{Runtime: LXC, ID: "db", Name: "user-4242/db", Root: own + "lxc/db"})
	h.wants(own+"machine.slice/machine-db.scope", Identity{Runtime: Machine, ID: "db", Name: "user-4242/db", Root: own + "machine.slice/machine-db.scope"})
	h.wants("/user.slice/user-0.slice/session-1.scope/lxc.payload.db", Identity{Runtime: LXC, ID: "db", Name: "db", Root: "/user.slice/user-0.slice/session-1.scope/lxc.payload.db"})
	h.wants("/docker/"+id, Identity{Runtime: Docker, ID: id, Name: "db", Root: "/docker/" + id})
	h.put("docker/containers/"+other+"/config.v2.json", `{"Name":"/k8s_nginx_web-0_shop_`+uid+`_3"}`)
	h.Resolve("/kubepods/pod" + uid + "/" + other)
	h.later(1)
	h.wants("/kubepods/pod"+uid, Identity{Runtime: Kubernetes, ID: uid, PodUID: uid, Pod: "web-0", Namespace: "shop", Name: "shop/web-0", Root: "/kubepods/pod" + uid})
	h.wants(own+"kubepods/pod"+uid, Identity{Runtime: Kubernetes, ID: uid, PodUID: uid, Name: "pod " + uid, Root: own + "kubepods/pod" + uid})
}
