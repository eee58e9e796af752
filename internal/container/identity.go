package container

import (
	"path"
	"strconv"
	"strings"
)

// The runtimes, as Identity.Runtime names them.
const (
	Docker     = "docker"
	Containerd = "containerd"
	CRIO       = "cri-o"
	Podman     = "podman"
	LXC        = "lxc"
	Runc       = "runc"
	// Machine is one that is registered with systemd-machined: a container of
	// systemd-nspawn, or a virtual machine of libvirt.
	Machine = "machine"
	// OCI is a container whose path does not name the runtime.
	OCI = "oci"
	// Kubernetes is the cgroup of a pod, or a container in a pod whose path
	// does not name the runtime.
	Kubernetes = "kubernetes"
	// Volume is the cgroup of the jbd2 thread of a Daybook volume.
	Volume = "volume"
	// Systemd is a unit: a service, a scope, or a slice.
	Systemd = "systemd"
	// Plain is a cgroup of no known meaning.
	Plain = ""
)

// Identity is the owner of a cgroup.
type Identity struct {
	// Runtime is one of the constants above.
	Runtime string
	// ID is the runtime's name for it: 64 hexadecimal digits for most, the name
	// for LXC, containerd, runc, machines and volumes, the UID for a pod, the unit for
	// systemd, "" for a plain cgroup.
	ID string
	// Name is the displayed name: the container's name,
	// "namespace/pod/container" for Kubernetes, else the ID, cut to 12 digits,
	// or the path. Before a name that a user chose is "user-UID/".
	Name string
	// Root is the path of the container's topmost cgroup, which has its weight;
	// the path itself for a plain cgroup.
	Root string
	// Pod and PodUID are set for Kubernetes; for Podman pods PodUID alone.
	Pod, PodUID string
	// Namespace is that of the pod in Kubernetes, else that of containerd.
	Namespace string
}

// IsContainer reports whether the cgroup belongs to a container, and not to a
// volume, a systemd unit, a whole pod, or an unknown owner.
func (i Identity) IsContainer() bool {
	switch i.Runtime {
	case Plain, Systemd, Volume:
		return false
	case Kubernetes:
		return i.ID != i.PodUID
	}
	return true
}

// RuntimeLabel is the runtime as samples and metrics name it. It is [Kubernetes] for all
// containers of a pod: only the systemd driver writes the runtime into their paths, and state
// files have it on some hosts only, or a while after the start.
func (i Identity) RuntimeLabel() string {
	// The UID of a pod of Podman is an ID.
	if i.Pod != "" || i.PodUID != "" && !isID(i.PodUID) {
		return Kubernetes
	}
	return i.Runtime
}

// Identify returns the owner of a cgroup by its path, as in /proc/PID/cgroup. A
// cgroup inside a container belongs to the container. For nested containers it
// is the outermost: the one that this host runs.
func Identify(cgroupPath string) Identity {
	i := identify(path.Clean("/" + cgroupPath))
	if user, ok := userOf(i.Root); ok && (i.Runtime == LXC || i.Runtime == Machine) {
		i.Name = user + "/" + i.Name // chosen by the user, as of Podman: see lookupOf
	}
	i.Name = printable(i.Name)
	return i
}

func identify(cgroupPath string) Identity {
	var pod Identity
	before := ""
	for start := 1; start < len(cgroupPath); {
		end := len(cgroupPath)
		if i := strings.IndexByte(cgroupPath[start:], '/'); i >= 0 {
			end = start + i
		}
		segment, root := cgroupPath[start:end], cgroupPath[:end]
		if found, ok := containerSegment(before, segment, pod.PodUID != ""); ok {
			found.Root = root
			if found.PodUID == "" {
				found.PodUID = pod.PodUID
			}
			if found.Name == "" {
				found.Name = shortID(found.ID)
			}
			return found
		}
		if uid := podUID(before, segment); uid != "" && pod.PodUID == "" {
			pod = Identity{Runtime: Kubernetes, ID: uid, PodUID: uid, Name: "pod " + uid, Root: root}
		} else if uid := libpodPod(segment); uid != "" {
			pod = Identity{PodUID: uid}
		}
		before, start = segment, end+1
	}
	if pod.Runtime == Kubernetes {
		return pod
	}
	if volume, ok := volumeCgroup(cgroupPath); ok {
		return volume
	}
	if unit, ok := systemdUnit(cgroupPath); ok {
		return unit
	}
	return Identity{Name: cgroupPath, Root: cgroupPath}
}

// containerSegment recognises the part of a path that represents a container.
// It also uses the part before it.
func containerSegment(before, segment string, inPod bool) (Identity, bool) {
	if isID(segment) {
		switch {
		case inPod:
			return Identity{Runtime: Kubernetes, ID: segment}, true
		case before == "docker":
			return Identity{Runtime: Docker, ID: segment}, true
		default:
			return Identity{Runtime: OCI, ID: segment}, true
		}
	}
	if name, ok := strings.CutPrefix(segment, "lxc.payload."); ok && name != "" {
		return Identity{Runtime: LXC, ID: name, Name: name}, true
	}
	if before == "lxc" || before == "lxc.payload" {
		return Identity{Runtime: LXC, ID: segment, Name: segment}, true
	}
	if before == "machine.slice" {
		if name := machineName(segment); name != "" {
			return Identity{Runtime: Machine, ID: name, Name: name}, true
		}
	}
	// runc makes "PARENT.slice:PREFIX:ID" of a systemd path if it was not
	// configured to use systemd.
	if parts := strings.Split(segment, ":"); len(parts) == 3 && isID(parts[2]) {
		return Identity{Runtime: prefixRuntime(parts[1]), ID: parts[2], PodUID: podUID("", parts[0])}, true
	}
	prefix, id, ok := cutID(strings.TrimSuffix(segment, ".scope"))
	if !ok || strings.HasSuffix(prefix, "conmon") {
		return Identity{}, false // conmon: the monitor beside the container
	}
	return Identity{Runtime: prefixRuntime(prefix), ID: id}, true
}

// machineName is the name of the machine whose unit is below machine.slice:
// "machine-NAME.scope" (systemd-nspawn, libvirt) or "systemd-nspawn@NAME.service"
// (machinectl start); "" for other units.
func machineName(unit string) string {
	for _, affixes := range [][2]string{{"machine-", ".scope"}, {"systemd-nspawn@", ".service"}} {
		if name, ok := strings.CutPrefix(unit, affixes[0]); ok {
			if name, ok = strings.CutSuffix(name, affixes[1]); ok {
				return unescape(name)
			}
		}
	}
	return ""
}

// unescape replaces "\xNN", as systemd escapes the names of units (systemd.unit(5)).
func unescape(name string) string {
	var out strings.Builder
	for i := 0; i < len(name); i++ {
		if strings.HasPrefix(name[i:], `\x`) && len(name) >= i+4 {
			if value, err := strconv.ParseUint(name[i+2:i+4], 16, 8); err == nil {
				out.WriteByte(byte(value))
				i += 3
				continue
			}
		}
		out.WriteByte(name[i])
	}
	return out.String()
}

// cutID splits "PREFIX-ID".
func cutID(s string) (prefix, id string, ok bool) {
	if cut := len(s) - idDigits - 1; cut > 0 && s[cut] == '-' && isID(s[cut+1:]) {
		return s[:cut], s[cut+1:], true
	}
	return "", "", false
}

func prefixRuntime(prefix string) string {
	switch prefix {
	case "docker":
		return Docker
	case "cri-containerd", "nerdctl", "containerd":
		return Containerd
	case "crio":
		return CRIO
	case "libpod":
		return Podman
	case "runc":
		return Runc
	}
	return OCI
}

// podUID recognises a pod: "podUID" below a part with "kubepods", or
// "kubepods-QOS-podUID.slice" with the dashes of the UID as underscores.
func podUID(before, segment string) string {
	if slice, ok := strings.CutSuffix(segment, ".slice"); ok {
		if !strings.Contains(slice, "kubepods") {
			return ""
		}
		_, uid, _ := strings.Cut(slice, "-pod")
		return onlyUID(strings.ReplaceAll(uid, "_", "-"))
	}
	uid, ok := strings.CutPrefix(segment, "pod")
	if !ok || before != "kubepods" && before != "burstable" && before != "besteffort" {
		return ""
	}
	return onlyUID(uid)
}

// onlyUID accepts the UIDs of the API server (a UUID) and of the kubelet for
// static pods (32 hexadecimal digits).
func onlyUID(uid string) string {
	if len(uid) < 32 || strings.Trim(uid, "0123456789abcdef-") != "" {
		return ""
	}
	return uid
}

// libpodPod recognises a Podman pod: "libpod_pod_ID", on systemd
// "machine-libpod_pod_ID.slice".
func libpodPod(segment string) string {
	if _, id, ok := strings.Cut(strings.TrimSuffix(segment, ".slice"), "libpod_pod_"); ok && isID(id) {
		return id
	}
	return ""
}

// systemdUnit finds the innermost service or scope, else the innermost slice.
func systemdUnit(cgroupPath string) (Identity, bool) {
	slice := Identity{}
	for root := cgroupPath; root != "/"; root = path.Dir(root) {
		switch name := path.Base(root); path.Ext(name) {
		case ".service", ".scope":
			return Identity{Runtime: Systemd, ID: name, Name: name, Root: root}, true
		case ".slice":
			if slice.Root == "" {
				slice = Identity{Runtime: Systemd, ID: name, Name: name, Root: root}
			}
		}
	}
	// Below a slice, a cgroup that is not a unit is a plain cgroup.
	return slice, slice.Root == cgroupPath
}

const (
	idDigits    = 64
	shortDigits = 12
)

// isID reports whether s is 64 hexadecimal digits, as Docker, containerd's CRI,
// CRI-O and Podman name containers.
func isID(s string) bool {
	if len(s) != idDigits {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func shortID(id string) string {
	if isID(id) {
		return id[:shortDigits]
	}
	return id
}
