package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestTheNearestProcessorLimitIsFound(t *testing.T) {
	root := t.TempDir()
	for file, content := range map[string]string{
		"a/cpu.max": "50000 100000\n", "a/b/cgroup.procs": "", "a/b/c/cpu.max": "max 100000\n", "d/e/cpu.max": "max 100000\n",
	} {
		path := filepath.Join(root, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		version         Version
		at, want, limit string
	}{
		{V2, "/a/b/c", "/a", "50000 100000"},
		{V2, "/a", "/a", "50000 100000"},
		{V2, "/d/e", "", ""},
		{V2, "/", "", ""},
		{V1, "/a/b/c", "", ""},
	} {
		at, limit, err := Open(test.version, root).ProcessorLimit(test.at)
		if err != nil || at != test.want || limit != test.limit {
			t.Errorf("%v %s: %q, %q, %v; want %q, %q", test.version, test.at, at, limit, err, test.want, test.limit)
		}
	}
	if _, _, err := Open(V2, root).ProcessorLimit("/gone"); !errors.Is(err, ErrVanished) {
		t.Errorf("of a cgroup that is gone: %v", err)
	}
}
