package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// fake is a small tree of plain files in place of a cgroup hierarchy. A file
// contains what the kernel would print, and later what was written to it.
type fake struct {
	*Tree
	t *testing.T
}

func newFake(t *testing.T, v Version, files map[string]string) fake {
	t.Helper()
	f := fake{Open(v, t.TempDir()), t}
	for name, content := range files {
		f.put(name, content)
	}
	return f
}

func (f fake) put(name, content string) {
	f.t.Helper()
	file := filepath.Join(f.Root(), name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// wants checks the current content of a file.
func (f fake) wants(name, content string) {
	f.t.Helper()
	got, err := os.ReadFile(filepath.Join(f.Root(), name))
	if err != nil || string(got) != content {
		f.t.Errorf("%s holds %q, %v; want %q", name, got, err, content)
	}
}
