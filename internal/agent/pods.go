package agent

import "github.com/daybook-project/daybook/internal/cri"

// Pod is a pod of this node.
type Pod struct {
	UID, Namespace, Name string
	// QoS is Guaranteed, Burstable or BestEffort, and Cgroup the pod's cgroup; "" if it has
	// none.
	QoS, Cgroup string
	// Ready: its sandbox runs. Unknown: nobody can be asked.
	Ready, Unknown bool
	Annotations    map[string]string
}

// podsOf are the pods by their UIDs. A pod is ready if one of its sandboxes is.
func podsOf(sandboxes []cri.Sandbox) map[string]Pod {
	pods := map[string]Pod{}
	for _, s := range sandboxes {
		if known, ok := pods[s.UID]; ok && known.Ready {
			continue
		}
		pods[s.UID] = Pod{UID: s.UID, Namespace: s.Namespace, Name: s.Name, Ready: s.Ready, Annotations: s.Annotations}
	}
	return pods
}
