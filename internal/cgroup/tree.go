package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Version is the version of the cgroup interface.
type Version int

// The two interfaces.
const (
	V1 Version = 1 // controller blkio, files blkio.*
	V2 Version = 2 // controller io, files io.*
)

// String returns "v1" or "v2".
func (v Version) String() string { return fmt.Sprintf("v%d", int(v)) }

var (
	// ErrVanished means that the cgroup was removed, perhaps just now.
	ErrVanished = errors.New("the cgroup is gone")
	// ErrNoHierarchy means that no mounted hierarchy has block I/O.
	ErrNoHierarchy = errors.New("no mounted cgroup hierarchy has the block I/O controller")
)

// RootPath is the path of the root cgroup.
const RootPath = "/"

// Tree is one mounted cgroup hierarchy with block I/O. It holds no descriptors
// and is safe for concurrent use.
type Tree struct {
	version Version
	root    string
	kernel  hierarchy
}

// hierarchy is the part that differs between the two versions.
type hierarchy interface {
	// counterFiles returns the files that count I/O, the better one first.
	counterFiles() []counterFile
	// weightRules returns the weight files by the scheduler or controller that
	// uses them.
	weightRules() map[string]weightRule
	// weightRule chooses the weight file for a disk.
	weightRule(t *Tree, disk disk) (weightRule, error)
	// limit reads the limits of one cgroup on one disk.
	limit(t *Tree, path string, d disk) (Limit, error)
	// setLimit writes the fields in which next differs from now.
	setLimit(t *Tree, path string, d disk, now, next Limit) error
}

// Find returns the hierarchy with block I/O on this host, according to
// /proc/self/mountinfo. On hybrid hosts that is v1 if blkio is mounted there,
// else v2. The error is [ErrNoHierarchy] if there is none.
func Find() (*Tree, error) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cannot find the cgroup hierarchy: %w", err)
	}
	return find(string(mountinfo), func(mountPoint string) string {
		controllers, _ := os.ReadFile(filepath.Join(mountPoint, "cgroup.controllers"))
		return string(controllers)
	})
}

// found is the last result of [Known].
var found atomic.Pointer[Tree]

// Known is [Find], but it reads /proc/self/mountinfo only if the hierarchy that it found
// last is not mounted there any more. On a host with many containers this file is long.
func Known() (*Tree, error) {
	if t := found.Load(); t != nil {
		if _, err := os.Stat(filepath.Join(t.root, "cgroup.procs")); err == nil {
			return t, nil
		}
	}
	t, err := Find()
	if err == nil {
		found.Store(t)
	}
	return t, err
}

func find(mountinfo string, controllers func(mountPoint string) string) (*Tree, error) {
	mounts := parseMountinfo(mountinfo)
	for _, m := range mounts {
		if m.Type == "cgroup" && hasOption(m, "blkio") {
			return Open(V1, m.Point), nil
		}
	}
	for _, m := range mounts {
		if m.Type != "cgroup2" {
			continue
		}
		for _, name := range strings.Fields(controllers(m.Point)) {
			if name == "io" {
				return Open(V2, m.Point), nil
			}
		}
	}
	return nil, fmt.Errorf("%w: neither a cgroup v1 mount with blkio nor a cgroup2 mount whose cgroup.controllers has io; "+
		"mount one, such as: mount -t cgroup2 none /sys/fs/cgroup", ErrNoHierarchy)
}

// Open returns the hierarchy of the given version at a directory, without
// checking it. Tests use it on small fake trees.
func Open(v Version, root string) *Tree {
	t := &Tree{version: v, root: filepath.Clean(root), kernel: v1{}}
	if v == V2 {
		t.kernel = v2{}
	}
	return t
}

// Version returns the version of the interface.
func (t *Tree) Version() Version { return t.version }

// Root returns the mount point.
func (t *Tree) Root() string { return t.root }

// Of returns the path of the cgroup of a process, from /proc/PID/cgroup.
func (t *Tree) Of(pid int) (string, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", fmt.Errorf("cannot find the cgroup of process %d: %w", pid, err)
	}
	controller := "blkio"
	if t.version == V2 {
		controller = ""
	}
	p, found := parseProcCgroup(string(content), controller)
	if !found {
		return "", fmt.Errorf("cannot find the cgroup of process %d: /proc/%d/cgroup has no line of cgroup %s block I/O", pid, pid, t.version)
	}
	return p, nil
}

// Lookup returns the cgroup at a path, or ErrVanished.
func (t *Tree) Lookup(cgroupPath string) (Cgroup, error) {
	var st unix.Stat_t
	err := unix.Stat(t.dir(cgroupPath), &st)
	if errors.Is(err, unix.ENOENT) {
		// The path may exist again by now, and explain would check it again.
		return Cgroup{}, fmt.Errorf("cannot find cgroup %s: %w", clean(cgroupPath), ErrVanished)
	}
	if err != nil {
		return Cgroup{}, t.explain("find", cgroupPath, "", err)
	}
	return Cgroup{Path: clean(cgroupPath), ID: st.Ino}, nil
}

// clean returns the canonical form of a cgroup path; ".." cannot leave the
// root.
func clean(cgroupPath string) string { return path.Clean("/" + cgroupPath) }

// dir returns the directory of a cgroup.
func (t *Tree) dir(cgroupPath string) string { return t.root + clean(cgroupPath) }

// maxFileBytes limits the size of any one file: a host with a thousand disks
// has about 200 KiB in blkio.bfq.io_service_bytes_recursive.
const maxFileBytes = 4 << 20

// read returns the content of a file of a cgroup.
func (t *Tree) read(cgroupPath, name string) ([]byte, error) {
	content, err := readBounded(filepath.Join(t.dir(cgroupPath), name))
	if err != nil {
		return nil, t.explain("read", cgroupPath, name, err)
	}
	return content, nil
}

func readBounded(file string) ([]byte, error) {
	fd, err := openCounters(file)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return readFD(fd, make([]byte, 0, 1024))
}

// readFD reads a kernel file completely in one read, into buf or a larger one:
// the kernel generates the content for each read, so two halves would not
// match.
func readFD(fd int, buf []byte) ([]byte, error) {
	for {
		n, err := unix.Pread(fd, buf[:cap(buf)], 0)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case n < cap(buf):
			return buf[:n], nil
		case cap(buf) >= maxFileBytes:
			return nil, fmt.Errorf("it is larger than %d bytes", maxFileBytes)
		default:
			buf = make([]byte, 0, 2*cap(buf))
		}
	}
}

// write writes one value to a file of a cgroup, in one write as the kernel
// requires.
func (t *Tree) write(cgroupPath, name, value string) error {
	// Without O_CREAT, a vanished cgroup or a fake tree gets no new file.
	f, err := os.OpenFile(filepath.Join(t.dir(cgroupPath), name), os.O_WRONLY|os.O_TRUNC, 0)
	if err == nil {
		_, err = f.WriteString(value + "\n")
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}
	if err != nil {
		return t.explain(fmt.Sprintf("write %q to", value), cgroupPath, name, err)
	}
	return nil
}

// explain converts an error of the kernel into one that names the file, and
// into ErrVanished if the whole cgroup is gone. The kernel returns ENOENT on
// open and ENODEV on an open file, and both have other causes, too.
func (t *Tree) explain(action, cgroupPath, name string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		if _, statErr := os.Lstat(t.dir(cgroupPath)); errors.Is(statErr, fs.ErrNotExist) {
			return fmt.Errorf("cannot %s %s of cgroup %s: %w", action, orDirectory(name), clean(cgroupPath), ErrVanished)
		}
	}
	return fmt.Errorf("cannot %s %s of cgroup %s: %w", action, orDirectory(name), clean(cgroupPath), err)
}

func orDirectory(name string) string {
	if name == "" {
		return "the directory"
	}
	return name
}
