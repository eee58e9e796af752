package agent

import (
	"errors"
	"path"
	"strings"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/cri"
	"github.com/daybook-project/daybook/internal/systemd"
)

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

// classes are the QoS classes, with the component that the kubelet puts between its root
// and the pod.
var classes = []struct{ class, component string }{
	{Guaranteed, ""}, {Burstable, "burstable"}, {BestEffort, "besteffort"},
}

// candidates are the paths that the kubelet gives the cgroup of a pod of a QoS class: with
// the cgroupfs driver, and with the systemd driver.
func candidates(root, component, uid string) (paths []string) {
	paths = append(paths, path.Join(root, "kubepods", component, "pod"+uid))
	// A "-" in a slice's name is a level of the hierarchy: the kubelet writes "_".
	var parts []string
	for part := range strings.SplitSeq(strings.Trim(root, "/"), "/") {
		if part = strings.TrimSuffix(part, ".slice"); part != "" {
			parts = append(parts, strings.ReplaceAll(part, "-", "_"))
		}
	}
	parts = append(parts, "kubepods")
	if component != "" {
		parts = append(parts, component)
	}
	parts = append(parts, "pod"+strings.ReplaceAll(uid, "-", "_"))
	if at, err := systemd.SliceCgroup(strings.Join(parts, "-") + ".slice"); err == nil {
		paths = append(paths, at)
	}
	return paths
}

// locate finds the cgroup of a pod, and its QoS class; "" if it has none.
func locate(tree *cgroup.Tree, root, uid string) (class, at string, err error) {
	if uid == "" || strings.ContainsAny(uid, "/\x00") {
		return "", "", nil
	}
	for _, c := range classes {
		for _, at := range candidates(root, c.component, uid) {
			_, err := tree.Lookup(at)
			if err == nil {
				return c.class, at, nil
			}
			if !errors.Is(err, cgroup.ErrVanished) {
				return "", "", err
			}
		}
	}
	return "", "", nil
}
