package agent

import (
	"strings"
	"sync"

	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/internal/cri"
)

// Names are the names of the containers of pods, as the container runtime gave them last.
type Names struct {
	mu         sync.Mutex
	containers map[string]Named // by ID
	pods       map[string]Named // by UID
}

// Named is what a cgroup of a pod belongs to.
type Named struct{ Namespace, Pod, PodUID, Container string }

// Name is "namespace/pod/container", or "namespace/pod".
func (n Named) Name() string {
	return strings.TrimSuffix(n.Namespace+"/"+n.Pod+"/"+n.Container, "/")
}

// sandboxContainer is the name of the container that holds a pod's namespaces.
const sandboxContainer = "POD"

func (n *Names) set(sandboxes []cri.Sandbox, containers []cri.Container) {
	byID, byUID, bySandbox := map[string]Named{}, map[string]Named{}, map[string]Named{}
	for _, s := range sandboxes {
		pod := Named{Namespace: s.Namespace, Pod: s.Name, PodUID: s.UID}
		byUID[s.UID], bySandbox[s.ID] = pod, pod
		pod.Container = sandboxContainer
		byID[s.ID] = pod
	}
	for _, c := range containers {
		named := bySandbox[c.SandboxID]
		named.Container = c.Name
		byID[c.ID] = named
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.containers, n.pods = byID, byUID
}

// Of names the container or pod of an identity; ok is false if the runtime does not know it.
func (n *Names) Of(identity container.Identity) (named Named, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if named, ok = n.containers[identity.ID]; ok {
		return named, true
	}
	named, ok = n.pods[identity.PodUID]
	return named, ok && identity.ID == identity.PodUID
}

// All lists the pods and their containers, by UID and by ID.
func (n *Names) All() (pods, containers map[string]Named) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods, n.containers // replaced as a whole, never changed
}
