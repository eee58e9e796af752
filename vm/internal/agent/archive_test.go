package agent

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// firstOf returns the header and content of an archive's only file.
func firstOf(t *testing.T, root string) (*tar.Header, string) {
	t.Helper()
	var out bytes.Buffer
	if err := writeTar(&out, root); err != nil {
		t.Fatalf("%s: %v", root, err)
	}
	archive := tar.NewReader(&out)
	header, err := archive.Next()
	if err != nil {
		t.Fatalf("%s: %v", root, err)
	}
	content, err := io.ReadAll(archive)
	if err != nil {
		t.Fatalf("%s: %v", root, err)
	}
	return header, string(content)
}

// Files of sysfs have the size of a page, whatever is in them, and those of proc have none.
func TestFilesOfTheKernelAreArchivedAsTheyAreRead(t *testing.T) {
	for _, path := range []string{"/sys/devices/system/cpu/possible", "/proc/self/comm", "/proc/cmdline"} {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Skip(err)
		}
		if _, got := firstOf(t, path); got != string(want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestAFileIsArchivedWithItsPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	want := string(bytes.Repeat([]byte("line\n"), 100_000))
	if err := os.WriteFile(path, []byte(want), 0o640); err != nil {
		t.Fatal(err)
	}
	header, got := firstOf(t, path)
	if header.Name != "." || header.FileInfo().Mode().Perm() != 0o640 || got != want {
		t.Errorf("%+v, %d bytes", header, len(got))
	}
}
