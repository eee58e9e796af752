package survey

import (
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/advise"
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
	in := found.Measured(advise.Input{}, found.SizeBytes/4)
	if in.SpanShare != 0.25 || in.DeviceVolume != found.DeviceVolume || in.Mode != found.Mode {
		t.Errorf("%+v", in)
	}
	if free, err := unpartitioned(found.Disk, found.SizeBytes); err != nil || free != found.SizeBytes {
		t.Errorf("%d of %d bytes are free, %v", free, found.SizeBytes, err)
	}
	if _, err := Of("no-such-disk"); err == nil {
		t.Error("a disk that does not exist: no error")
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
	if in.Near != of(4) || in.OwnMoves != of(6) || in.Moves != of(8) {
		t.Errorf("near %+v, own %+v, all %+v", in.Near, in.OwnMoves, in.Moves)
	}
}
