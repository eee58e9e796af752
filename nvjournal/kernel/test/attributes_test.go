package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Attributes in the inode, in their own block, and in a block that several files
// share; replaced, grown, removed.
func attributes(t *testing.T, s system) {
	v := s.make(t, plan{})
	const files = 40
	for n := range files {
		path := filepath.Join(v.dir, fmt.Sprintf("file%d", n))
		if err := os.WriteFile(path, []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, a := range []struct {
			name string
			size int
		}{{"user.small", 8 + n}, {"user.shared", 600}, {"trusted.own", 20 * n}, {"user.gone", 100}, {"user.small", 70}} {
			fill := byte(len(a.name))
			if a.name == "trusted.own" {
				fill = byte(n)
			}
			if err := unix.Setxattr(path, a.name, bytes.Repeat([]byte{fill}, a.size), 0); err != nil {
				t.Fatalf("%s of %d bytes on %s: %v", a.name, a.size, path, err)
			}
		}
		if err := unix.Removexattr(path, "user.gone"); err != nil {
			t.Fatal(err)
		}
		if n%3 == 0 {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Attributes that do not fit are refused, and nothing changes.
	path := filepath.Join(v.dir, "file1")
	if err := unix.Setxattr(path, "user.large", make([]byte, 5000), 0); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("an attribute of 5000 bytes: %v", err)
	}
	v.end(nil)
}

// largeAttributes sets attributes that need their own inodes.
func largeAttributes(t *testing.T, v *volume) {
	for n := range 10 {
		path := filepath.Join(v.dir, fmt.Sprintf("large%d", n))
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for round := range 3 {
			if err := unix.Setxattr(path, "user.large", bytes.Repeat([]byte{byte(n)}, 5000*(round+1)), 0); err != nil {
				t.Fatal(err)
			}
		}
		if n%2 == 0 {
			if err := unix.Removexattr(path, "user.large"); err != nil {
				t.Fatal(err)
			}
		}
	}
}
