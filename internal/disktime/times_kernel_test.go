package disktime_test

import (
	"errors"
	"os"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/disktime"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

// Writes and syncs of a file are seen with their bytes and times, and only on their
// disk.
func TestRequestsOfADiskAreTimed(t *testing.T) {
	ext4test.Compare(t, requestsAreTimed)
}

func requestsAreTimed(t *testing.T) (void bool) {
	fs := ext4test.New(t, ext4test.Options{})
	probe, err := disktime.Open()
	needs.That(t, !errors.Is(err, disktime.ErrUnsupported), "BPF programs at tracepoints of the block layer")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := probe.Close(); err != nil {
			t.Error(err)
		}
	}()
	seen := ext4test.NewSeenWrites(t, fs.Disk)
	before, err := fs.Disk.Stat()
	if err != nil {
		t.Fatal(err)
	}
	const writes, blockBytes = 20, 64 << 10
	f, err := os.Create(fs.Dir + "/file")
	if err != nil {
		t.Fatal(err)
	}
	for range writes {
		if _, err := f.Write(make([]byte, blockBytes)); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := fs.Disk.Stat()
	if err != nil {
		t.Fatal(err)
	}
	sums, err := probe.Read(fs.Disk.Dev)
	if err != nil {
		t.Fatal(err)
	}
	var data, metadata, flushes, all disktime.Sums
	for key, sum := range sums {
		switch key.Class {
		case disktime.Data:
			data = data.Add(sum)
		case disktime.Metadata:
			metadata = metadata.Add(sum)
		case disktime.Flush:
			flushes = flushes.Add(sum)
			continue
		}
		all = all.Add(sum)
	}
	if seen.Missed(t) != 0 {
		return true
	}
	t.Logf("data %+v, metadata %+v, flushes %+v", data, metadata, flushes)
	if data.Requests < writes || data.Bytes < writes*blockBytes || data.ServedNanoseconds == 0 {
		t.Errorf("%+v of data; want %d writes of %d bytes", data, writes, blockBytes)
	}
	if metadata.Requests < writes || flushes.Requests < writes {
		t.Errorf("%d writes of the journal and %d flushes; want at least %d of each", metadata.Requests, flushes.Requests, writes)
	}
	if disk := after.Bytes() - before.Bytes(); all.Bytes < disk*9/10 || all.Bytes > disk*11/10+1<<20 {
		t.Errorf("%d bytes were timed; the disk has %d", all.Bytes, disk)
	}
	if other, err := probe.Read(blockdev.Dev{Major: 1, Minor: 1}); err != nil || len(other) != 0 {
		t.Errorf("%v of another disk, %v", other, err)
	}
	return false
}

func TestSumsSinceAReading(t *testing.T) {
	a, b := disktime.Sums{Requests: 1, Bytes: 2, QueuedNanoseconds: 3, ServedNanoseconds: 4}, disktime.Sums{Requests: 10, Bytes: 20, QueuedNanoseconds: 30, ServedNanoseconds: 40}
	if got := a.Add(b).Less(a); got != b {
		t.Errorf("%+v; want %+v", got, b)
	}
	if got := a.Less(b); got != (disktime.Sums{}) {
		t.Errorf("%+v from a counter that went back", got)
	}
}
