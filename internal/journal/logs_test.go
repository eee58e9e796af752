package journal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// fakeSys makes a directory with these directories that stands for /sys until the test ends.
func fakeSys(t *testing.T, directories ...string) {
	t.Helper()
	dir, host := t.TempDir(), blockdev.Host
	for _, d := range directories {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	blockdev.Host.Sys = dir
	t.Cleanup(func() { blockdev.Host = host })
}

func TestOnlyMappedDevicesWithRequestsPassThemOn(t *testing.T) {
	fakeSys(t, "block/dm-0/mq", "block/dm-1", "block/sda/mq", "block/loop0/mq")
	for name, want := range map[string]bool{"dm-0": true, "dm-1": false, "sda": false, "sda1": false, "loop0": false} {
		if got := mapsRequests(name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}
