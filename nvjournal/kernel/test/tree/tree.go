// Package tree takes down what a directory tree is, so that two states of it
// can be compared: before and after unmounting, on one file system driver and
// on another.
package tree

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Tree is a line for each path, which says all that must not change: kind and
// permissions, owner, links, size, time of change, device, content or target,
// extended attributes.
type Tree map[string]string

// Take reads a tree. Names that do not belong to a user's files are left out:
// lost+found.
func Take(root string) (Tree, error) {
	t := Tree{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if name == "lost+found" {
			return fs.SkipDir
		}
		t[name], err = line(path)
		return err
	})
	return t, err
}

func line(path string) (string, error) {
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		return "", fmt.Errorf("stat %s: %w", path, err)
	}
	text := fmt.Sprintf("mode %o owner %d:%d links %d mtime %d.%09d", s.Mode, s.Uid, s.Gid, s.Nlink, s.Mtim.Sec, s.Mtim.Nsec)
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		sum, err := content(path)
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf(" size %d sha256 %x", s.Size, sum)
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		text += " target " + target
	case unix.S_IFCHR, unix.S_IFBLK:
		text += fmt.Sprintf(" device %d:%d", unix.Major(s.Rdev), unix.Minor(s.Rdev))
	}
	attributes, err := Attributes(path)
	if err != nil {
		return "", err
	}
	for _, a := range attributes {
		text += " " + a
	}
	return text, nil
}

func content(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return nil, err
	}
	return sum.Sum(nil), nil
}

// Attributes are a file's extended attributes as name=hexadecimal, sorted.
func Attributes(path string) ([]string, error) {
	names := make([]byte, 64<<10) // the kernel's own limit of a list
	n, err := unix.Llistxattr(path, names)
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the attributes of %s: %w", path, err)
	}
	var list []string
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if name == "" {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return nil, fmt.Errorf("attribute %s of %s: %w", name, path, err)
		}
		list = append(list, fmt.Sprintf("%s=%x", name, value[:n]))
	}
	slices.Sort(list)
	return list, nil
}

// maxDifferences is how many Compare names; a lost tree would name them all.
const maxDifferences = 20

// Compare gives an error that names what differs between two states.
func Compare(before, after Tree) error {
	var names []string
	for name := range before {
		names = append(names, name)
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var differ []string
	for _, name := range names {
		a, wasThere := before[name]
		b, isThere := after[name]
		switch {
		case !isThere:
			differ = append(differ, name+": gone, was "+a)
		case !wasThere:
			differ = append(differ, name+": was not there, is "+b)
		case a != b:
			differ = append(differ, name+": was "+a+"\n\tis "+b)
		}
	}
	if differ == nil {
		return nil
	}
	count := len(differ)
	return fmt.Errorf("%d of %d names differ:\n%s", count, len(names), strings.Join(differ[:min(count, maxDifferences)], "\n"))
}
