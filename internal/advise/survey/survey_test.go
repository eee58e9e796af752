package survey

import (
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/advise"
	"github.com/daybook-project/daybook/internal/blockdev/blockdevtest"
	"github.com/daybook-project/daybook/internal/ext4test"
)

func TestModeOfMountOptions(t *testing.T) {
	for options, want := range map[string]advise.Mode{
		"rw dioread_nolock data=ordered":   advise.Unwritten,
		"rw dioread_lock data=ordered":     advise.Ordered,
		"rw dioread_nolock data=writeback": advise.Writeback,
		"rw data=journal":                  advise.Journal,
	} {
		if got := ModeOf(strings.Fields(options)); got != want {
			t.Errorf("%s: %s; want %s", options, got, want)
		}
	}
}

// A file system on a whole loop device: no other device fits on it, nor an image.
func TestTheWholeDiskHasNoPlaceForAVolume(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	found, err := Of(fs.Disk.Name)
	if err != nil {
		t.Fatal(err)
	}
	if found.Disk.Name != fs.Disk.Name || found.SizeBytes == 0 || found.Mode == "" {
		t.Errorf("%+v", found)
	}
	if !strings.Contains(found.DeviceVolume, "whole disk "+fs.Disk.Name) || !strings.Contains(found.ImageVolume, "no XFS") {
		t.Errorf("%+v", found)
	}
	in := found.Measured(advise.Input{}, found.SizeBytes/4, 0.7)
	if in.SpanShare != 0.25 || in.DeviceVolume != found.DeviceVolume || in.Mode != found.Mode {
		t.Errorf("%+v", in)
	}
	// Weights count if the disk has BFQ, and BFQ keeps it for a cgroup.
	for _, test := range []struct {
		scheduler, idle string
		want            float64
	}{{"bfq", "8", 0.7}, {"bfq", "0", 0}, {"none", "", 0}} {
		if err := blockdevtest.SetScheduler(t, fs.Disk.Disk, test.scheduler); err != nil {
			t.Fatal(err)
		}
		if test.idle != "" {
			if err := fs.Disk.SetTunable("slice_idle", test.idle); err != nil {
				t.Fatal(err)
			}
		}
		if found, err = Of(fs.Disk.Name); err != nil {
			t.Fatal(err)
		}
		if got := found.Measured(advise.Input{}, 0, 0.7).Share; got != test.want {
			t.Errorf("%s with slice_idle %q: a share of %g, want %g", test.scheduler, test.idle, got, test.want)
		}
	}
	if free, err := unpartitioned(found.Disk, found.SizeBytes); err != nil || free != found.SizeBytes {
		t.Errorf("%d of %d bytes are free, %v", free, found.SizeBytes, err)
	}
	if _, err := Of("no-such-disk"); err == nil {
		t.Error("a disk that does not exist: no error")
	}
}
