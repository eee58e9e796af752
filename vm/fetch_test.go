package vm

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The guest may run anything, so what it sends must stay where it was asked to.
func TestFetchWritesNowhereElse(t *testing.T) {
	for name, entries := range map[string][]tar.Header{
		"a path upwards":           {{Name: "../evil", Typeflag: tar.TypeReg, Mode: 0o644}},
		"an absolute path":         {{Name: "EVIL", Typeflag: tar.TypeReg, Mode: 0o644}},
		"through a link":           {{Name: "l", Linkname: "..", Typeflag: tar.TypeSymlink}, {Name: "l/evil", Typeflag: tar.TypeReg, Mode: 0o644}},
		"through an absolute link": {{Name: "l", Linkname: "PARENT", Typeflag: tar.TypeSymlink}, {Name: "l/evil", Typeflag: tar.TypeReg, Mode: 0o644}},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			evil := filepath.Join(parent, "evil")
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, h := range append([]tar.Header{{Name: ".", Typeflag: tar.TypeDir, Mode: 0o755}}, entries...) {
				if h.Name == "EVIL" {
					h.Name = evil
				}
				if h.Linkname == "PARENT" {
					h.Linkname = parent
				}
				if err := w.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if err := unpack(tar.NewReader(&b), "x", filepath.Join(parent, "here")); err == nil {
				t.Error("no error")
			}
			if _, err := os.Lstat(evil); err == nil {
				t.Error("it was written")
			}
		})
	}
}
