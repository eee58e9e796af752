package cgroup

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroup is one cgroup at the time of the listing.
type Cgroup struct {
	// Path is the path below the mount point; "/" is the root.
	Path string
	// ID is the kernfs node id, which is the inode number of the directory; in
	// BPF it is task->cgroups->subsys[...]->cgroup->kn->id. No other cgroup
	// gets it as long as the kernel runs. (On 32-bit kernels and kernels before
	// 5.5 the inode number is only its lower half.)
	ID uint64
	// Beyond means that the cgroup is somewhere below Path, and its own path is
	// too long or too deep to be used. Only a Lister lists such cgroups.
	Beyond bool
}

// List returns every cgroup, including the root, sorted by path. It skips
// cgroups that vanish meanwhile, and those that cannot be listed: their path is
// too long or too deep, or permission is missing.
func (t *Tree) List(ctx context.Context) ([]Cgroup, error) {
	var w walker
	nodes, err := w.walk(ctx, t.root)
	if err != nil {
		return nil, err
	}
	list := make([]Cgroup, len(nodes))
	for i, n := range nodes {
		list[i] = n.Cgroup
	}
	slices.SortFunc(list, func(a, b Cgroup) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// walker lists a hierarchy repeatedly at a low cost: one getdents for each
// cgroup with children, one fstatat for each cgroup, whose link count shows
// whether it has any, and no new strings for known cgroups.
type walker struct {
	known map[uint64]*node // by ID
	round uint64
	list  []*node
	// far are the cgroups whose path is too long or too deep to be used.
	far []Cgroup
	// skipped counts the cgroups that the list lacks: those in far, and those
	// that cannot be opened or exceed the bounds, each with all its
	// descendants.
	skipped uint64
	reach   reach // the zero value: those of this package
	// getdents buffers
	names, farNames []byte
	// leafAge is how long a cgroup is assumed to have no children; 0 means
	// never. now is the time of the walk.
	leafAge time.Duration
	now     time.Time
}

type node struct {
	Cgroup
	name     string
	parent   *node
	level    int  // 0 for the root
	children bool // it may have children
	round    uint64
	looked   time.Time // for children
	open     openFiles
}

// direntBytes is the buffer of one getdents call, about 300 long names.
const direntBytes = 32 << 10

// walk returns all cgroups, parents before children; the slice is valid until
// the next walk.
func (w *walker) walk(ctx context.Context, root string) ([]*node, error) {
	if w.known == nil {
		w.known = make(map[uint64]*node)
	}
	if w.reach == (reach{}) {
		w.reach = reachOf(root)
	}
	w.round++
	w.now = time.Now()
	w.list, w.far, w.skipped = w.list[:0], w.far[:0], 0

	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return nil, fmt.Errorf("cannot list the cgroups at %s: %w", root, err)
	}
	w.add(nil, st.Ino, nil, true)
	for i := 0; i < len(w.list); i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if n := w.list[i]; n.children {
			if err := w.descend(root, n); err != nil {
				return nil, err
			}
		}
	}
	return w.list, nil
}

// forget calls gone for each cgroup that the last walk did not find.
func (w *walker) forget(gone func(*node)) {
	if len(w.known) == len(w.list) {
		return
	}
	for id, n := range w.known {
		if n.round != w.round {
			gone(n)
			delete(w.known, id)
		}
	}
}

func (w *walker) add(parent *node, id uint64, name []byte, children bool) {
	n := w.known[id]
	switch {
	case n == nil:
		n = &node{}
		w.known[id] = n
		fallthrough
	case n.name != string(name) || n.parent != parent || parent != nil && parent.Path != n.parentPath():
		n.name, n.parent = string(name), parent
		n.Cgroup = Cgroup{Path: childPath(parent, n.name), ID: id}
		if n.level = 0; parent != nil {
			n.level = parent.level + 1
		}
	case n.round == w.round:
		return // a directory that changes while it is read can repeat a name
	}
	n.round, n.children = w.round, children
	w.list = append(w.list, n)
}

// parentPath is the path of the parent when this path was made; v1 allows a
// cgroup to be renamed.
func (n *node) parentPath() string {
	p := n.Path[:len(n.Path)-len(n.name)-1]
	if p == "" {
		return RootPath
	}
	return p
}

func childPath(parent *node, name string) string {
	switch {
	case parent == nil:
		return RootPath
	case parent.parent == nil:
		return "/" + name
	default:
		return parent.Path + "/" + name
	}
}

// descend adds the children of one cgroup.
func (w *walker) descend(root string, parent *node) error {
	fd, err := unix.Open(root+parent.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		if vanished(err) && parent.parent != nil {
			return nil
		}
		if parent.parent != nil {
			w.skipped++
			return nil
		}
		return fmt.Errorf("cannot list the cgroups at %s: %w", root+parent.Path, err)
	}
	defer unix.Close(fd)
	err = w.entries(fd, &w.names, func(entry dirent) { w.child(fd, parent, entry) })
	if err == nil || vanished(err) {
		return nil
	}
	if parent.parent != nil {
		w.skipped++
		return nil
	}
	return fmt.Errorf("cannot list the cgroups at %s: %w", root+parent.Path, err)
}

func vanished(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOTDIR)
}

func (w *walker) child(fd int, parent *node, entry dirent) {
	if !entry.isDirectory() {
		return
	}
	if !w.reach.reaches(parent, entry.name) {
		w.beyond(fd, parent, string(entry.name))
		return
	}
	if len(w.list) >= w.reach.listed {
		w.skipped++
		return
	}
	name := ""
	if known := w.known[entry.ino]; known != nil && known.name == string(entry.name) {
		if known.parent == parent && !known.children && w.now.Sub(known.looked) < w.leafAge {
			w.add(parent, entry.ino, entry.name, false)
			return
		}
		name = known.name
	} else {
		name = string(entry.name)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	// Two links are the directory itself and its name, so there is no
	// subdirectory. File systems that do not count links, used by fake trees,
	// report 1.
	w.add(parent, st.Ino, entry.name, st.Nlink != 2)
	w.known[st.Ino].looked = w.now
}

// dirent is one struct linux_dirent64: inode (8 bytes), offset (8), record
// length (2), type (1), name up to the first zero byte.
type dirent struct {
	ino  uint64
	kind byte
	name []byte
}

// isDirectory reports whether the entry can be a subdirectory.
func (d dirent) isDirectory() bool {
	return (d.kind == unix.DT_DIR || d.kind == unix.DT_UNKNOWN) && string(d.name) != "." && string(d.name) != ".."
}

func cutDirent(buf []byte) (entry dirent, rest []byte) {
	const header = 19
	if len(buf) < header {
		return dirent{}, nil
	}
	length := int(binary.NativeEndian.Uint16(buf[16:]))
	if length < header || length > len(buf) {
		return dirent{}, nil
	}
	name, _, _ := bytes.Cut(buf[header:length], []byte{0})
	return dirent{binary.NativeEndian.Uint64(buf), buf[18], name}, buf[length:]
}
