package cache

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The name of a cache may have characters that patterns of names have.
func TestADirectoryIsMadeInACacheOfAnyName(t *testing.T) {
	for _, name := range []string{"plain", "a[b", "[a]", "*?\\", "a b\n"} {
		parent := filepath.Join(t.TempDir(), name)
		dir := filepath.Join(parent, "made")
		unfinished := filepath.Join(parent, NewPrefix+"1")
		if err := os.MkdirAll(unfinished, 0o755); err != nil {
			t.Fatal(err)
		}
		made := 0
		for range 2 {
			err := Make(t.Context(), dir, func() { t.Error("it waits") }, func(_ Tools, next string) error {
				made++
				if err := os.WriteFile(filepath.Join(next, "file.deb"), nil, 0o644); err != nil {
					return err
				}
				found, err := Find(next, "*.deb")
				if !slices.Equal(found, []string{filepath.Join(next, "file.deb")}) {
					t.Errorf("%q: found %q", name, found)
				}
				return err
			})
			if err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "file.deb")); err != nil || made != 1 {
			t.Errorf("%q: made %d times, %v", name, made, err)
		}
		if _, err := os.Stat(unfinished); !os.IsNotExist(err) {
			t.Errorf("%q: what a killed process left is there: %v", name, err)
		}
	}
}
