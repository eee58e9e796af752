package agent

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// plugins are the directories of volume plugins of the kubelet whose volumes can be file
// systems of their own. The volume of a CSI driver is mounted on "mount" in its directory.
var plugins = map[string]string{"kubernetes.io~csi": "mount", "kubernetes.io~local-volume": ""}

// fileSystems are those whose journal can be placed.
var fileSystems = []string{"ext4", "ext3", "ext4nvj", "jfsnvj"}

// Volume is a mounted volume of a pod.
type Volume struct {
	PodUID string
	// Name is that of the PersistentVolume, by which the kubelet names the directory.
	Name  string
	Mount blockdev.Mount
}

// volumesOf finds the volumes of pods among the mounts of a host, below the names that the
// kubelet's directory has. A directory of a file system, such as one of the node's own, has no
// journal of its own, and is none.
func volumesOf(mounts []blockdev.Mount, kubeletDirs ...string) []Volume {
	var all []Volume
	for _, mount := range mounts {
		if mount.Dev.Major == 0 || mount.Root != "/" || !slices.Contains(fileSystems, mount.Type) {
			continue
		}
		for _, dir := range kubeletDirs {
			if uid, name, ok := parsePath(mount.Point, dir); ok {
				all = append(all, Volume{PodUID: uid, Name: name, Mount: mount})
				break
			}
		}
	}
	return all
}

// parsePath recognises KUBELET/pods/UID/volumes/PLUGIN/NAME and, for CSI,
// KUBELET/pods/UID/volumes/kubernetes.io~csi/NAME/mount.
func parsePath(point, kubeletDir string) (uid, name string, ok bool) {
	rest, found := strings.CutPrefix(point, filepath.Join(kubeletDir, "pods")+"/")
	parts := strings.Split(rest, "/")
	if !found || len(parts) < 4 || parts[1] != "volumes" {
		return "", "", false
	}
	last, known := plugins[parts[2]]
	if !known || strings.Join(parts[4:], "/") != last {
		return "", "", false
	}
	return parts[0], parts[3], parts[0] != "" && parts[3] != ""
}
