package initrd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// node is an entry of the guest's root: a directory, a link, a text, or a file
// of the host.
type node struct {
	mode   fs.FileMode // type and permissions
	target string      // of a link
	text   []byte
	host   string // a file of the host, if text is nil
}

// tree is the guest's root before it is written. Paths are clean and absolute.
// A later entry replaces an earlier one with the same path.
type tree map[string]node

// resolve follows the tree's links to directories, such as /bin.
func (t tree) resolve(name string) (string, error) {
	resolved := "/"
	parts := strings.Split(strings.Trim(path.Clean("/"+name), "/"), "/")
	for steps := 0; len(parts) > 0; steps++ {
		const maxSteps = 255
		if steps > maxSteps {
			return "", fmt.Errorf("%s: too many links", name)
		}
		next := path.Join(resolved, parts[0])
		n, known := t[next]
		if len(parts) > 1 && known && n.mode&fs.ModeSymlink != 0 {
			target := n.target
			if !path.IsAbs(target) {
				target = path.Join(resolved, target)
			}
			parts = append(strings.Split(strings.Trim(path.Clean(target), "/"), "/"), parts[1:]...)
			resolved = "/"
			continue
		}
		resolved = next
		parts = parts[1:]
	}
	return resolved, nil
}

// put adds an entry, and the directories above it.
func (t tree) put(name string, n node) error {
	at, err := t.resolve(name)
	if err != nil {
		return err
	}
	if at == "/" {
		return nil
	}
	for dir := path.Dir(at); dir != "/"; dir = path.Dir(dir) {
		above, known := t[dir]
		if known && !above.mode.IsDir() {
			return fmt.Errorf("%s cannot be in the guest, because %s is not a directory there", name, dir)
		}
		if !known {
			t[dir] = node{mode: fs.ModeDir | 0o755}
		}
	}
	old, known := t[at]
	if known && old.mode.IsDir() != n.mode.IsDir() {
		return fmt.Errorf("%s cannot be in the guest both as a directory and as a file", name)
	}
	t[at] = n
	return nil
}

func (t tree) putDirectory(name string, perm fs.FileMode) error {
	return t.put(name, node{mode: fs.ModeDir | perm})
}

func (t tree) putText(name string, perm fs.FileMode, text string) error {
	return t.put(name, node{mode: perm, text: []byte(text)})
}

func (t tree) putLink(name, target string) error {
	return t.put(name, node{mode: fs.ModeSymlink | 0o777, target: target})
}

func (t tree) putFile(name, host string) error { return t.put(name, node{host: host}) }

// write writes the tree as a cpio archive, and returns its size in bytes.
func (t tree) write(w io.Writer) (int64, error) {
	c := newCPIO(w)
	// Sorting puts a directory before its files.
	for _, name := range slices.Sorted(maps.Keys(t)) {
		n := t[name]
		entry := strings.TrimPrefix(name, "/")
		var err error
		switch {
		case n.mode.IsDir():
			err = c.directory(entry, n.mode)
		case n.mode&fs.ModeSymlink != 0:
			err = c.symlink(entry, n.target)
		case n.host == "":
			err = c.file(entry, n.mode, n.text)
		default:
			err = c.copyFile(entry, n.host)
		}
		if err != nil {
			return 0, err
		}
	}
	err := c.close()
	return c.offset, err
}

// checkRegular returns an error if a file of the host is not a regular one: an open of a pipe
// would wait for a writer.
func checkRegular(name string) error {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New(name + " is not a regular file")
	}
	return err
}

// isMissing reports whether err means that a file of the host does not exist.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrNotExist)
}
