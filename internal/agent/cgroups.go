package agent

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/systemd"
)

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
	if !isUID(uid) {
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

// isUID says whether a text can be a part of a path.
func isUID(uid string) bool { return uid != "" && !strings.ContainsAny(uid, "/\x00") }

// searchPause is between two listings of all cgroups.
const searchPause = 10 * time.Second

// maxRoots bounds the roots that are tried before a search.
const maxRoots = 4

// podCgroups finds the cgroups of pods, also where the kubelet's --cgroup-root is not the
// configured one: distributions choose it by how they were started.
type podCgroups struct {
	tree *cgroup.Tree
	// roots are the configured one, and those that a search has found.
	roots []string
	// searched is when the cgroups were last listed.
	searched time.Time
}

// locate finds the cgroup of a pod, and its QoS class; "" if it has none. If it is at none
// of the known places, and runs, it is searched, from time to time.
func (p *podCgroups) locate(ctx context.Context, uid string, runs bool) (class, at string, err error) {
	for _, root := range p.roots {
		if class, at, err = locate(p.tree, root, uid); err != nil || at != "" {
			return class, at, err
		}
	}
	if !runs || !isUID(uid) || time.Since(p.searched) < searchPause {
		return "", "", nil
	}
	p.searched = time.Now()
	all, err := p.tree.List(ctx)
	if err != nil {
		return "", "", err
	}
	class, root, at := search(all, uid)
	if at != "" && len(p.roots) < maxRoots {
		p.roots = append(p.roots, root)
	}
	return class, at, nil
}

// search finds the cgroup of a pod among all, its QoS class, and the kubelet's root. Of
// several it is the one with the shortest path: a kubelet in a container has its own below.
func search(all []cgroup.Cgroup, uid string) (class, root, at string) {
	for _, c := range all {
		if at != "" && len(c.Path) >= len(at) {
			continue
		}
		for _, k := range classes {
			if r, ok := rootOf(c.Path, k.component, uid); ok {
				class, root, at = k.class, r, c.Path
			}
		}
	}
	return class, root, at
}

// rootOf is the root below which the kubelet gives the cgroup of a pod this path; ok is false
// if it gives no pod of this class and UID such a path.
func rootOf(at, component, uid string) (root string, ok bool) {
	root, ok = strings.CutSuffix(at, path.Join("/kubepods", component, "pod"+uid))
	if !ok {
		// Of a slice: the levels above it are in its name.
		name := path.Join("kubepods", component, "pod"+strings.ReplaceAll(uid, "-", "_"))
		root, ok = strings.CutSuffix(strings.TrimSuffix(path.Base(at), ".slice"), strings.ReplaceAll(name, "/", "-"))
		root = strings.ReplaceAll(strings.TrimSuffix(root, "-"), "-", "/")
	}
	root = path.Join("/", root)
	return root, ok && slices.Contains(candidates(root, component, uid), at)
}
