package test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A lazy transaction of a file locks a page of extents and frees a block, so it ends when it is
// committed, by JFS's thread. The next transaction of the file is synchronous, commits both, and
// frees the page. It ends after the first one, which still holds the page.
func jfsTruncatedAfterLazy(t *testing.T, s system) {
	// A page that is freed too early ends the guest, rather than a thread that others wait for.
	setParameters(t, "/proc/sys/kernel/panic_on_oops", "1")
	defer setParameters(t, "/proc/sys/kernel/panic_on_oops", "0")
	v := s.make(t, plan{})
	const files, extents = 100, 40
	path := filepath.Join(v.dir, "file")
	existing := filepath.Join(v.dir, "existing")
	block := make([]byte, 4096)
	attribute := func(value byte) error {
		return unix.Setxattr(path, "user.long", bytes.Repeat([]byte{value}, 1000), 0)
	}
	replace := func() error {
		err := os.WriteFile(existing, block, 0o644)
		if err == nil {
			err = os.Rename(path, existing)
		}
		path, existing = existing, path
		return err
	}
	for _, lazy := range []struct {
		name  string
		frees func() error
	}{
		{"attribute", func() error { return attribute(2) }},
		{"rename", replace},
	} {
		for n := range files {
			file, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			for extent := range int64(extents) {
				_, e := file.WriteAt(block, 2*extent*4096)
				err = errors.Join(err, e)
			}
			err = errors.Join(err, attribute(1), file.Sync())
			// The page of the last extents has a lock without a transaction.
			_, e := file.WriteAt(block, 2*extents*4096)
			if err := errors.Join(err, e, lazy.frees(), file.Truncate(0), file.Close(), os.Remove(path)); err != nil {
				t.Fatalf("%s, file %d: %v", lazy.name, n, err)
			}
		}
	}
	v.end(nil)
}
