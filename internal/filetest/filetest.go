// Package filetest has checks of files for tests.
package filetest

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// WantEqual fails the test if two files differ.
func WantEqual(t *testing.T, got, want string) {
	t.Helper()
	a, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("%s differs from %s", got, want)
	}
}

// AllocatedBytes is the space that the blocks of a file take.
func AllocatedBytes(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}
