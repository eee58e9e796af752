package agent

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

func TestEnabledControllers(t *testing.T) {
	got := enabledControllers("#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t1\t1\nrdma\t0\t1\t0\nblkio\t0\t1\t1\n")
	if want := []string{"cpu", "blkio"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMergeEnvironment(t *testing.T) {
	got := mergeEnvironment([]string{"PATH=/bin", "HOME=/root"}, []string{"HOME=/tmp", "A=b=c"})
	slices.Sort(got)
	if want := []string{"A=b=c", "HOME=/tmp", "PATH=/bin"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestFindProgram(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"a/tool": 0o644, "b/tool": 0o755, "b/sub/x": 0o755} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	path := dir + "/a:" + dir + "/b"
	if got, err := findProgram("tool", "/", path); err != nil || got != dir+"/b/tool" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := findProgram("./sub/x", dir+"/b", ""); err != nil || got != dir+"/b/sub/x" {
		t.Errorf("relative to the directory: %q, %v", got, err)
	}
	for _, name := range []string{"sub", "none", "./none"} {
		if got, err := findProgram(name, dir, path); !os.IsNotExist(err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestUnescape(t *testing.T) {
	if got := unescape(`/a\040b\134c`); got != `/a b\c` {
		t.Error(got)
	}
}
