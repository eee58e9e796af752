package container

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of the state of other programs.
const (
	maxStateBytes  = 8 << 20 // one state file; Docker's with 10,000 labels has 1 MiB
	maxStateDirs   = 16384   // containers in one state directory
	maxNameRunes   = 128     // a name for people
	maxCachedPaths = 65536   // cgroups whose identity is kept
)

// version identifies one content of a file.
type version struct {
	modified time.Time
	bytes    int64
	inode    uint64
	owner    uint32
}

func versionOf(info os.FileInfo) version {
	v := version{modified: info.ModTime(), bytes: info.Size()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		v.inode, v.owner = st.Ino, st.Uid
	}
	return v
}

// readState decodes a JSON state file, unless its version is the one seen
// before: then changed is false. Only regular files of limited size are read,
// and no symbolic link is followed, because containers can own the surrounding
// directories.
func readState(file string, before version, into any) (now version, changed bool, err error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return version{}, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return version{}, false, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxStateBytes {
		return version{}, false, fmt.Errorf("%s: not a regular file of at most %d bytes", file, maxStateBytes)
	}
	if now = versionOf(info); now == before {
		return now, false, nil
	}
	content, err := io.ReadAll(io.LimitReader(f, maxStateBytes))
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		return version{}, false, fmt.Errorf("%s: %w", file, err)
	}
	return now, true, nil
}

// listDir returns the names in a directory, up to maxStateDirs. Users own some of the
// directories around it, so it may be something else, such as a pipe without a writer.
func listDir(dir string) []string {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxStateDirs)
	return names
}

// userName is how users are called in names of their containers, and by systemd.
func userName(uid uint32) string { return fmt.Sprintf("user-%d", uid) }

// isOf reports whether a cgroup is one of a user's own: "/user.slice/user-UID.slice/…".
func isOf(uid uint32, cgroupPath string) bool {
	return strings.HasPrefix(cgroupPath, "/user.slice/"+userName(uid)+".slice/")
}

// userOf is the user whose manager has a cgroup, and who may make any cgroup there; ok is false
// if none but root may.
func userOf(cgroupPath string) (user string, ok bool) {
	rest, _ := strings.CutPrefix(cgroupPath, "/user.slice/")
	user, rest, _ = strings.Cut(rest, ".slice/")
	uid, ok := strings.CutPrefix(user, "user-")
	return user, ok && uid != "0" && strings.HasPrefix(rest, "user@"+uid+".service/")
}

// clean makes a name suitable for a table: printable, and cut if it is too
// long.
func clean(name string) string {
	if utf8.RuneCountInString(name) > maxNameRunes {
		name = string([]rune(name)[:maxNameRunes-1]) + "…"
	}
	return printable(name)
}

// printable replaces the characters that control a terminal: names of
// containers, and of cgroups, can contain anything.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, name)
}

// facts are the known facts of one container from a runtime's state.
type facts struct {
	runtime                      string
	name, pod, podUID, namespace string
	kubernetes                   bool // name, pod and namespace are Kubernetes'
	// storageName is the name in containers/storage.
	storageName string
}

// apply writes the known facts into an identity.
func (f facts) apply(i Identity) Identity {
	if f.runtime != "" {
		i.Runtime = f.runtime
	}
	if f.podUID != "" {
		i.PodUID = clean(f.podUID)
	}
	if f.namespace != "" {
		i.Namespace = clean(f.namespace)
	}
	if f.kubernetes {
		i.Pod = clean(f.pod)
		i.Name = clean(f.namespace + "/" + f.pod + "/" + f.name)
	} else if f.name != "" {
		i.Name = clean(f.name)
	}
	return i
}

// labelFacts reads the labels or annotations by which Kubernetes marks
// containers: dockershim and CRI-O, then containerd's CRI, then nerdctl.
func labelFacts(labels map[string]string) facts {
	first := func(keys ...string) string {
		for _, key := range keys {
			if value := labels[key]; value != "" {
				return value
			}
		}
		return ""
	}
	f := facts{
		name:      first("io.kubernetes.container.name", "io.kubernetes.cri.container-name"),
		pod:       first("io.kubernetes.pod.name", "io.kubernetes.cri.sandbox-name"),
		namespace: first("io.kubernetes.pod.namespace", "io.kubernetes.cri.sandbox-namespace"),
		podUID:    first("io.kubernetes.pod.uid", "io.kubernetes.cri.sandbox-uid"),
	}
	if f.pod != "" {
		f.kubernetes = true
		if f.name == "" {
			f.name = "POD" // the sandbox, which holds the pod's namespaces
		}
		return f
	}
	return facts{name: first("nerdctl/name")}
}

// kubernetesName parses "k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT", the names
// that dockershim and CRI-O give to containers.
func kubernetesName(name string) (facts, bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 6 || parts[0] != "k8s" {
		return facts{name: name}, false
	}
	return facts{name: parts[1], pod: parts[2], namespace: parts[3], podUID: parts[4], kubernetes: true}, true
}
