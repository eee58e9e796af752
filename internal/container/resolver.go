package container

import (
	"path"
	"strings"
	"sync"
	"time"
)

// Config lists where the runtimes store their state. The zero value of a field
// means the runtime's default; missing directories are ignored.
type Config struct {
	// DockerRoots are values of dockerd's --data-root; /var/lib/docker.
	DockerRoots []string
	// ContainerdStates are directories with NAMESPACE/ID/config.json, as
	// containerd's runtime makes them below its --state directory.
	ContainerdStates []string
	// RuncRoots are directories with ID/state.json: values of runc's --root.
	// "*" represents any name.
	RuncRoots []string
	// StorageRoots are the roots of containers/storage, which Podman and CRI-O
	// share; /var/lib/containers/storage.
	StorageRoots []string
	// RootlessRoots are the same of users' Podman, where "*" represents any name;
	// /home/*/.local/share/containers/storage.
	RootlessRoots []string
	// VolumePools is the file with Daybook's list of pools;
	// /var/lib/daybook/pools.
	VolumePools string
	// Refresh is how long state is cached: a new container has its name after
	// this time at the latest. 5 s.
	Refresh time.Duration
}

func (c Config) withDefaults() Config {
	set := func(field *[]string, defaults ...string) {
		if *field == nil {
			*field = defaults
		}
	}
	set(&c.DockerRoots, "/var/lib/docker")
	set(&c.ContainerdStates,
		"/run/containerd/io.containerd.runtime.v2.task",
		"/run/docker/containerd/daemon/io.containerd.runtime.v2.task",
		"/run/k3s/containerd/io.containerd.runtime.v2.task")
	set(&c.RuncRoots, "/run/runc", "/run/containerd/runc/*", "/run/docker/runtime-runc/*", "/run/user/*/runc")
	set(&c.StorageRoots, "/var/lib/containers/storage")
	set(&c.RootlessRoots, "/home/*/.local/share/containers/storage")
	if c.VolumePools == "" {
		c.VolumePools = "/var/lib/daybook/pools"
	}
	if c.Refresh <= 0 {
		c.Refresh = 5 * time.Second
	}
	return c
}

// Resolver names the containers of this host's cgroups. It reads the runtimes'
// state at most once per refresh and caches it, so that each later query for a
// cgroup is a map lookup. It is safe for concurrent use.
type Resolver struct {
	config  Config
	now     func() time.Time
	sources sources

	mu        sync.Mutex
	refreshed time.Time
	round     uint64
	cache     map[string]cached
	pods      map[string]facts // by UID, from their containers' state
}

// sources are the states of the runtimes.
type sources struct {
	docker     dockerState
	containerd containerdState
	runc       runcState
	storage    storageState
	rootless   storageState
	volumes    volumeState
}

type cached struct {
	identity Identity
	asked    uint64 // round
	resolved uint64 // round
}

// NewResolver returns a resolver; it reads nothing yet.
func NewResolver(config Config) *Resolver {
	config = config.withDefaults()
	return &Resolver{
		config: config,
		now:    time.Now,
		sources: sources{
			docker:     dockerState{roots: config.DockerRoots},
			containerd: containerdState{dirs: config.ContainerdStates},
			runc:       runcState{roots: config.RuncRoots},
			storage:    storageState{roots: config.StorageRoots},
			rootless:   storageState{roots: config.RootlessRoots},
			volumes:    volumeState{registry: config.VolumePools},
		},
		cache: make(map[string]cached),
		pods:  make(map[string]facts),
	}
}

// Resolve returns the owner of a cgroup. It cannot fail: with missing or
// invalid state, the result is that of Identify.
func (r *Resolver) Resolve(cgroupPath string) Identity {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.now(); r.round == 0 || now.Sub(r.refreshed) >= r.config.Refresh || now.Before(r.refreshed) {
		r.refreshed = now
		r.refresh()
	}
	entry, known := r.cache[cgroupPath]
	if !known || entry.resolved != r.round {
		entry = cached{identity: r.resolve(cgroupPath), resolved: r.round}
	}
	entry.asked = r.round
	if known || len(r.cache) < maxCachedPaths {
		r.cache[cgroupPath] = entry
	}
	return entry.identity
}

// refresh lists the state directories again and forgets the cgroups and pods
// that were not queried since the last refresh but one.
func (r *Resolver) refresh() {
	r.round++
	r.sources.containerd.refresh()
	r.sources.runc.refresh()
	r.sources.storage.refresh()
	r.sources.rootless.refresh()
	r.sources.volumes.refresh()
	r.sources.docker.refresh()
	pods := make(map[string]bool)
	for p, entry := range r.cache {
		if entry.asked+2 < r.round {
			delete(r.cache, p)
		} else {
			pods[entry.identity.PodUID] = true
		}
	}
	for uid := range r.pods {
		if !pods[uid] {
			delete(r.pods, uid)
		}
	}
}

func (r *Resolver) resolve(cgroupPath string) Identity {
	i := Identify(cgroupPath)
	_, users := userOf(i.Root)
	switch {
	case i.IsContainer():
		if isID(i.ID) {
			i = r.sources.describe(i)
		}
		if i.PodUID != "" && i.Pod != "" {
			r.pods[i.PodUID] = facts{pod: i.Pod, namespace: i.Namespace}
		} else if pod, ok := r.pods[i.PodUID]; ok && !users {
			i.Pod, i.Namespace = pod.pod, pod.namespace
		}
	case i.Runtime == Kubernetes:
		if pod, ok := r.pods[i.PodUID]; ok && !users {
			i.Pod, i.Namespace, i.Name = pod.pod, pod.namespace, pod.namespace+"/"+pod.pod
		}
	default:
		if found, ok := r.sources.locate(path.Clean("/" + cgroupPath)); ok {
			return found
		}
	}
	return i
}

// describe adds the known facts of a container by its ID.
func (s *sources) describe(i Identity) Identity {
	if i.Runtime == Podman {
		if f, ok := s.rootless.lookupOf(i.Root, i.ID); ok {
			return f.apply(i)
		}
	}
	if _, ok := userOf(i.Root); ok {
		return i // the ID can be that of another's container
	}
	if i.Runtime == Docker || i.Runtime == OCI || i.Runtime == Kubernetes {
		if f, ok := s.docker.lookup(i.ID); ok {
			return f.apply(i)
		}
	}
	if i.Runtime == Podman || i.Runtime == CRIO || i.Runtime == OCI || i.Runtime == Kubernetes {
		if f, ok := s.storage.lookup(i.ID); ok {
			return f.apply(i)
		}
	}
	if i.Runtime != Podman && i.Runtime != CRIO {
		if f, ok := s.containerd.lookup(i.ID); ok {
			return f.apply(i)
		}
	}
	if i.Runtime == OCI && s.runc.has(i.ID) {
		i.Runtime = Runc
	}
	return i
}

// locate finds the container whose state contains a path, or one above it: for
// paths that name no runtime.
func (s *sources) locate(cgroupPath string) (Identity, bool) {
	for end := 1; end < len(cgroupPath); {
		if i := strings.IndexByte(cgroupPath[end:], '/'); i >= 0 {
			end += i
		} else {
			end = len(cgroupPath)
		}
		root := cgroupPath[:end]
		if i, ok := s.containerd.at(root); ok {
			return i, true
		}
		if i, ok := s.runc.at(root); ok {
			return s.describe(i), true
		}
		if i, ok := s.volumes.at(root); ok {
			return i, true
		}
		end++
	}
	return Identity{}, false
}
