package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// Options that an attach would refuse are refused when the volume is created, and nothing is left.
func TestMountOptionsAreCheckedAtCreation(t *testing.T) {
	r := newRig(t)
	needs.That(t, ext4.CheckOptions("ext4", "nonsense") != nil, "a kernel that says which options ext4 has (5.17)")
	for options, want := range map[string]string{
		"foo=bar":                   "foo",
		"data=ordered,commit=x":     "commit",
		"journal_data=small":        "journal_data", // ext4nvj's
		"commit=30,,nodelalloc":     "comma-separated",
		"commit = 30":               "comma-separated",
		"noatime":                   "--noatime",
		"commit=30,ro":              "--read-only",
		"journal_path=/dev/none":    "Daybook sets",
		"journal_dev=7":             "Daybook sets",
		"norecovery":                "no journal",
		strings.Repeat("a=b,", 999): "bytes",
	} {
		name := r.name("v")
		_, err := r.pool.Create(t.Context(), name, CreateOptions{SizeBytes: testBytes, MountOptions: options})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v; want that it is invalid, and %q", options, err, want)
		}
	}
	for _, dir := range []string{store.VolumesDir, store.WorkDir} {
		if left, err := os.ReadDir(filepath.Join(r.pool.dir, dir)); err != nil || len(left) != 0 {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
	name := r.name("v")
	r.create(name, CreateOptions{MountOptions: "data=ordered,commit=30,noauto_da_alloc,lazytime"})
	r.attach(name, AttachOptions{})
	r.clear()
}
