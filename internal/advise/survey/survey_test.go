package survey

import (
	"math"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/advise"
	"github.com/daybook-project/daybook/internal/blockdev/blockdevtest"
	"github.com/daybook-project/daybook/internal/disktime"
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

// A container's share is that of the containers with I/O. Where it is not known, there is
// none.
func TestTheShareIsOfContainersWithIO(t *testing.T) {
	device := account.Device{Containers: []account.Container{
		{Cgroup: "/", ChargedWriteBytes: 9}, {Cgroup: "/a", TargetShare: 0.3}, {Cgroup: "/b", TargetShare: 0.1, ChargedWriteBytes: 1}, {Cgroup: "/c", TargetShare: 0.6},
	}}
	for cgroup, want := range map[string]float64{"/a": 0.75, "/b": 1, "/": 0, "/d": 0} {
		if got := ShareOf(device, cgroup); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s has %g, want %g", cgroup, got, want)
		}
	}
}

func TestRequestsAreTheContainersOrOthers(t *testing.T) {
	var in advise.Input
	sums := disktime.Sums{Requests: 2, QueuedNanoseconds: 3e9, ServedNanoseconds: 4e9}
	for _, class := range []disktime.Class{disktime.Read, disktime.Data, disktime.Metadata, disktime.Flush} {
		Count(&in, class, true, sums)
		Count(&in, class, false, sums)
	}
	one := advise.Requests{Count: 2, QueuedSeconds: 3, ServedSeconds: 4}
	if in.Own != one || in.Others != one.Add(one) || in.Metadata != one.Add(one) || in.Flushes != one.Add(one) {
		t.Errorf("%+v", in)
	}
}

func TestMovesAreNearBetweenRequestsOfTheVolume(t *testing.T) {
	var in advise.Input
	sums := disktime.Moves{Requests: 1, Roots: 2, Sectors: 4, AloneMicroseconds: 3e6, Products: 6e6}
	for _, of := range []struct {
		class, before  disktime.Class
		own, ownBefore bool
	}{
		{disktime.Data, disktime.Data, true, true}, {disktime.Data, disktime.Metadata, true, false}, // near
		{disktime.Metadata, disktime.Data, false, true}, {disktime.Metadata, disktime.Metadata, false, false}, // near
		{disktime.Data, disktime.Data, true, false}, {disktime.Metadata, disktime.Read, false, false}, // from others'
		{disktime.Data, disktime.Metadata, false, false}, {disktime.Read, disktime.Data, false, true}, // to others'
	} {
		CountMoves(&in, of.class, of.own, of.before, of.ownBefore, sums)
	}
	of := func(n uint64) advise.Moves {
		f := float64(n)
		return advise.Moves{Requests: n, Roots: 2 * f, Sectors: 4 * f, AloneSeconds: 3 * f, Products: 6 * f}
	}
	if in.Journal != of(1) || in.Near != of(4) || in.OwnMoves != of(6) || in.Moves != of(8) {
		t.Errorf("in the journal %+v, near %+v, own %+v, all %+v", in.Journal, in.Near, in.OwnMoves, in.Moves)
	}
}
