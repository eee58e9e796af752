package filesystem

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/records"
)

// An image whose journal is elsewhere is whole only when that was replayed.
func TestACopyWithoutAnUnreplayedJournalIsRefused(t *testing.T) {
	debugfs := needs.Tool(t, "debugfs")
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 16<<20)); err != nil {
		t.Fatal(err)
	}
	if err := CheckCopy(records.Volume{}, image); !errors.Is(err, cause.ErrCorrupt) {
		t.Errorf("zeros: %v", err)
	}
	needs.Tool(t, "mke2fs")
	if err := ext4.Make(context.Background(), image, ext4.MakeOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := CheckCopy(records.Volume{}, image); err != nil {
		t.Errorf("with its journal inside: %v", err)
	}
	for _, request := range []string{"set_super_value journal_dev 0x0801", "set_super_value journal_inum 0", "feature needs_recovery"} {
		if output, err := exec.Command(debugfs, "-w", "-R", request, image).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", request, err, output)
		}
	}
	if err := CheckCopy(records.Volume{}, image); !errors.Is(err, cause.ErrUnsupported) {
		t.Errorf("with a journal elsewhere that was not replayed: %v", err)
	}
}
