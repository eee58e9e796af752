package journal

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/records"
)

func TestEachJournalSaysWhereItIs(t *testing.T) {
	for _, c := range []struct {
		record records.Volume
		device string
		bytes  uint64
	}{{records.Volume{}, "", 8 << 20}, {records.Volume{JournalDevice: "/dev/j"}, "/dev/j", 0}} {
		j := Of(c.record)
		var made ext4.MakeOptions
		var mounted ext4.MountOptions
		var offline ext4.Offline
		j.Make(&made, 8<<20)
		j.Mount(&mounted)
		j.Offline(&offline)
		if made.JournalDevice != c.device || mounted.JournalDevice != c.device || offline.JournalDevice != c.device || made.JournalBytes != c.bytes {
			t.Errorf("%q: made %+v, mounted %+v, offline %+v", c.device, made, mounted, offline)
		}
		if j.Inside() != (c.device == "") || j.Inside() == slices.Contains(j.Nodes(), "/dev/j") {
			t.Errorf("%q: inside %v, nodes %q", c.device, j.Inside(), j.Nodes())
		}
	}
}

// An image whose journal is elsewhere is whole only when that was replayed.
func TestACopyWithoutAnUnreplayedJournalIsRefused(t *testing.T) {
	debugfs := needs.Tool(t, "debugfs")
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 16<<20)); err != nil {
		t.Fatal(err)
	}
	if err := CheckCopy(image); !errors.Is(err, cause.ErrCorrupt) {
		t.Errorf("zeros: %v", err)
	}
	needs.Tool(t, "mke2fs")
	if err := ext4.Make(context.Background(), image, ext4.MakeOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := CheckCopy(image); err != nil {
		t.Errorf("with its journal inside: %v", err)
	}
	for _, request := range []string{"set_super_value journal_dev 0x0801", "set_super_value journal_inum 0", "feature needs_recovery"} {
		if output, err := exec.Command(debugfs, "-w", "-R", request, image).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", request, err, output)
		}
	}
	if err := CheckCopy(image); !errors.Is(err, cause.ErrUnsupported) {
		t.Errorf("with a journal elsewhere that was not replayed: %v", err)
	}
}
