package filetest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// EachRefused replaces the file at path, in each way in which another user may have made it or which
// would stop its reader, by one that must not be used, and calls try with the reason that the error must have.
// The file must exist, and is as before in the end. maxBytes is what its reader takes at most.
func EachRefused(t *testing.T, path string, maxBytes int64, try func(way, reason string)) {
	t.Helper()
	aside := filepath.Join(t.TempDir(), "aside")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mode := func(permissions os.FileMode) error {
		return errors.Join(os.WriteFile(path, text, 0o600), os.Chmod(path, permissions))
	}
	for _, way := range []struct {
		name, reason string
		put          func() error
	}{
		{"link", "it is a symbolic link", func() error { return os.Symlink(aside, path) }},
		{"link to nothing", "it is a symbolic link", func() error { return os.Symlink(aside+"-missing", path) }},
		{"FIFO", "it is no regular file", func() error { return unix.Mkfifo(path, 0o600) }},
		{"socket", "it is no regular file", func() error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) }},
		{"directory", "it is no regular file", func() error { return os.Mkdir(path, 0o700) }},
		{"group may write", "others may write to it (mode 0620)", func() error { return mode(0o620) }},
		{"others may write", "others may write to it (mode 0602)", func() error { return mode(0o602) }},
		{"another user's", "it belongs to user 65534", func() error { return errors.Join(mode(0o600), os.Chown(path, 65534, -1)) }},
		{"too large", "it is larger than", func() error { return errors.Join(mode(0o600), os.Truncate(path, maxBytes+1)) }},
	} {
		if way.name == "another user's" && os.Geteuid() != 0 {
			continue // only root makes one
		}
		if err := errors.Join(os.Rename(path, aside), way.put()); err != nil {
			t.Fatalf("%s: %v", way.name, err)
		}
		try(way.name, way.reason)
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s: it was removed: %v", way.name, err)
		}
		if err := errors.Join(os.RemoveAll(path), os.Rename(aside, path)); err != nil {
			t.Fatalf("%s: %v", way.name, err)
		}
	}
}
