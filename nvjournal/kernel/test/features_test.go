package test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/nvjournal/kernel/test/fsx"
)

// features are options of a file system or mount that change what ext4 journals.
// The tests of each change run with the quick ones.
var features = []struct {
	name    string
	quick   bool
	mkfs    []string
	options []string
	fsx     fsx.Options
	prepare func(t *testing.T, v *volume)
}{
	{name: "inline data", quick: true, mkfs: []string{"-O", "inline_data"}, fsx: fsx.Options{NoDirect: true}},
	{name: "clusters", quick: true, mkfs: []string{"-O", "bigalloc", "-C", "65536"}, fsx: fsx.Options{BlockBytes: 65536, Bytes: 1 << 20}},
	{name: "folded case", mkfs: []string{"-O", "casefold", "-E", "encoding=utf8"}, prepare: foldCase},
	{name: "no checksums", mkfs: []string{"-O", "^metadata_csum"}},
	{name: "no extents", quick: true, mkfs: []string{"-O", "^extents,^64bit"}, fsx: fsx.Options{NoShift: true}},
	{name: "orphan file", mkfs: []string{"-O", "orphan_file"}},
	{name: "small inodes", mkfs: []string{"-I", "128"}},
	{name: "large attributes", mkfs: []string{"-O", "ea_inode"}, prepare: largeAttributes},
	{name: "unordered data", options: []string{"data=writeback"}},
	{name: "allocation at once", options: []string{"nodelalloc"}},
	{name: "locked direct reads", options: []string{"dioread_lock"}},
	{name: "no barriers", options: []string{"nobarrier"}},
	{name: "discard", options: []string{"discard"}},
	{name: "accounts", mkfs: []string{"-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota,lazy_itable_init=0"}},
	{name: "inode versions", options: []string{"i_version"}},
}

func withFeatures(t *testing.T, s system) {
	for _, f := range features {
		if scaled(0, 1) == 0 && (!f.quick || s != eight && s.ours()) {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			v := s.make(t, plan{features: f.mkfs, options: f.options})
			if f.prepare != nil {
				f.prepare(t, v)
			}
			check := scripted(t, v.dir, 2, scaled(150, 1500))
			stormed(t, v.dir, 3, scaled(100, 1500))
			exercised(t, v.dir, 2, scaled(60, 1000), f.fsx)
			v.end(check)
		})
	}
}

// foldCase makes a directory in which a and A are one name.
func foldCase(t *testing.T, v *volume) {
	dir := filepath.Join(v.dir, "folded")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	must(t, "chattr", "+F", dir)
	for _, name := range []string{"Straße", "UPPER", "lower"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "upper"))
	if err != nil || string(text) != "UPPER" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.Rename(filepath.Join(dir, "LOWER"), filepath.Join(dir, "other")); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(dir, "STRASSE")); err != nil {
		t.Error(err)
	}
}
