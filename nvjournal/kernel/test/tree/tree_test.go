package tree_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/nvjournal/kernel/test/tree"
)

func TestCompareNamesEachKindOfDifference(t *testing.T) {
	for _, test := range []struct {
		what   string
		change func(dir string) error
		said   string
	}{
		{"nothing", func(string) error { return nil }, ""},
		{"content", func(dir string) error { return rewrite(filepath.Join(dir, "a"), "hellO") }, "a: was"},
		{"permissions", func(dir string) error { return os.Chmod(filepath.Join(dir, "a"), 0o600) }, "a: was"},
		{"a lost name", func(dir string) error { return os.Remove(filepath.Join(dir, "l")) }, "l: gone"},
		{"a new name", func(dir string) error { return os.Mkdir(filepath.Join(dir, "d", "n"), 0o755) }, "d/n: was not there"},
		{"a link", func(dir string) error { return os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")) }, "a: was"},
	} {
		t.Run(test.what, func(t *testing.T) {
			dir := t.TempDir()
			for _, err := range []error{
				os.WriteFile(filepath.Join(dir, "a"), []byte("hello"), 0o644),
				os.Mkdir(filepath.Join(dir, "d"), 0o755),
				os.Symlink("a", filepath.Join(dir, "l")),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			before, err := tree.Take(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := test.change(dir); err != nil {
				t.Fatal(err)
			}
			after, err := tree.Take(dir)
			if err != nil {
				t.Fatal(err)
			}
			err = tree.Compare(before, after)
			if (err != nil) != (test.said != "") || err != nil && !strings.Contains(err.Error(), test.said) {
				t.Errorf("%v, want %q", err, test.said)
			}
		})
	}
}

// rewrite changes content and leaves size and time as they were.
func rewrite(path, text string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Chtimes(path, info.ModTime(), info.ModTime())
}
