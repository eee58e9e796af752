package systemd

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// IODeviceWeight=/ 700 is a weight on the disk of the file system.
func TestAUnitsPathCanBeOnAFileSystemOfTheDisk(t *testing.T) {
	path, st := "", unix.Stat_t{}
	for _, candidate := range []string{t.TempDir(), "/", "/etc/hosts", "/home"} {
		if err := unix.Stat(candidate, &st); err == nil && unix.Major(st.Dev) != 0 {
			path = candidate
			break
		}
	}
	if path == "" {
		t.Skip("no file system of a block device here")
	}
	// As if it were on the partition sda1 of sda.
	sys := t.TempDir()
	for name, text := range map[string]string{"sda/dev": "8:0", "sda/sda1/dev": blockdev.DevOf(st.Dev).String(), "sda/sda1/partition": "1"} {
		name = filepath.Join(sys, "devices", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(sys, "dev/block"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(sys, "devices/sda/sda1"), filepath.Join(sys, "dev/block", blockdev.DevOf(st.Dev).String())); err != nil {
		t.Fatal(err)
	}
	h := DiskWeights{Devices: blockdev.Tree{Sys: sys}, Path: "/dev/sda", Dev: blockdev.Dev{Major: 8}}
	for path, want := range map[string]bool{path: true, "/dev/sda": true, "/proc": false, "/none": false} {
		if got := h.isDisk(path); got != want {
			t.Errorf("%s: %t, want %t", path, got, want)
		}
	}
	if h.Dev = (blockdev.Dev{Major: 8, Minor: 16}); h.isDisk(path) {
		t.Errorf("%s is on another disk", path)
	}
}

// Somebody may set a unit's weight by another path after Daybook has set it by its own.
func TestOnePathNamesTheDiskAfterAChange(t *testing.T) {
	d := DiskWeights{Devices: blockdev.Tree{Sys: t.TempDir()}, Path: "/dev/sda"}
	named := func(path string) []DeviceWeight { return []DeviceWeight{{"/dev/sdb", 300}, {path, 346}} }
	for _, c := range []struct {
		all    []DeviceWeight
		weight uint64
		want   []DeviceWeight
		whole  bool
	}{
		{nil, 500, []DeviceWeight{{"/dev/sda", 500}}, false},
		{named("/dev/sda"), 500, []DeviceWeight{{"/dev/sda", 500}}, false},
		{named("/dev/sda"), 0, []DeviceWeight{{"/dev/sdb", 300}}, true},
		{append(named("/dev/sda"), DeviceWeight{"/dev/sda", 777}), 500, []DeviceWeight{{"/dev/sdb", 300}, {"/dev/sda", 500}}, true},
	} {
		if got, whole := d.with(c.all, c.weight); !slices.Equal(got, c.want) || whole != c.whole {
			t.Errorf("%v, %d: %v %t, want %v %t", c.all, c.weight, got, whole, c.want, c.whole)
		}
	}
}
