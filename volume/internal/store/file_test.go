package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/needs"
)

// Otherwise a repair reports each volume of a pool that is mounted read-only as damaged.
func TestNothingIsToBeRemovedOnAReadOnlyFileSystem(t *testing.T) {
	needs.Root(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, 0) }()
	err := errors.Join(os.WriteFile(file, nil, 0o600), unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if err != nil {
		t.Fatal(err)
	}
	if err := RemoveIfThere(filepath.Join(dir, "missing")); err != nil {
		t.Error(err)
	}
	if err := RemoveIfThere(file); !errors.Is(err, unix.EROFS) {
		t.Errorf("a file that is there: %v", err)
	}
}
