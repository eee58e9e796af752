package disktime_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/disktime"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

// open opens a probe until the test ends.
func open(t *testing.T) *disktime.Probe {
	t.Helper()
	return opened(t, disktime.Open)
}

func opened(t *testing.T, open func() (*disktime.Probe, error)) *disktime.Probe {
	t.Helper()
	probe, err := open()
	needs.That(t, !errors.Is(err, disktime.ErrUnsupported), "BPF programs at tracepoints of the block layer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := probe.Close(); err != nil {
			t.Error(err)
		}
	})
	return probe
}

// Writes and syncs of a file are seen with their bytes and times, and only on their
// disk.
func TestRequestsOfADiskAreTimed(t *testing.T) {
	for name, open := range map[string]func() (*disktime.Probe, error){"as the kernel is": disktime.Open, "with a journal that does not mark its writes": disktime.OpenUnmarked} {
		t.Run(name, func(t *testing.T) {
			ext4test.Compare(t, func(t *testing.T) bool { return requestsAreTimed(t, open) })
		})
	}
}

func requestsAreTimed(t *testing.T, open func() (*disktime.Probe, error)) (void bool) {
	fs := ext4test.New(t, ext4test.Options{})
	probe := opened(t, open)
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

// The way from the end of a request to the next is known to the sector.
func TestWaysBetweenRequestsAreSeen(t *testing.T) {
	needs.Root(t)
	path := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 2<<30)); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(path, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := loop.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	disk, err := os.OpenFile(loop.Path(), os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	probe := open(t)
	block, err := unix.Mmap(-1, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(block) }()
	const blockSectors, sectorBytes = 8, 512
	end := int64(1 << 20)
	write := func(from int64, bytes int) {
		t.Helper()
		if _, err := disk.WriteAt(block[:bytes], from*sectorBytes); err != nil {
			t.Fatal(err)
		}
		end = from + int64(bytes)/sectorBytes
	}
	write(end, blockSectors*sectorBytes) // the first has no way
	var want disktime.Moves
	for _, way := range []int64{0, 8, 15, 16, -24, 1_000_000, -1_002_000, 1_002_000, -999_999} {
		write(end+way, blockSectors*sectorBytes)
		root := uint64(math.Sqrt(math.Abs(float64(way))))
		want = want.Add(disktime.Moves{Requests: 1, Roots: root, Sectors: root * root})
	}
	write(end+800_000, len(block)) // too large for a move
	moves, err := probe.Moves(loop.Dev)
	if err != nil {
		t.Fatal(err)
	}
	var got disktime.Moves
	for key, sum := range moves {
		if key.Of.Class != disktime.Data || key.Before.Class != disktime.Data || key.Of.Cgroup != key.Before.Cgroup {
			t.Errorf("a move %+v; want writes of data of one cgroup", key)
		}
		got = got.Add(sum)
	}
	if got.AloneMicroseconds == 0 || got.Products == 0 {
		t.Errorf("%+v have no times", got)
	}
	got.AloneMicroseconds, got.Products = 0, 0
	if got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
}

// If several requests are on the disk at a time, their times alone add up to the time in
// which it had one.
func TestTheTimeAloneIsTheDisksTime(t *testing.T) {
	ext4test.Compare(t, func(t *testing.T) (void bool) {
		fs := ext4test.New(t, ext4test.Options{})
		probe := open(t)
		begin := time.Now()
		var writers sync.WaitGroup
		for n := range 16 {
			writers.Go(func() {
				f, err := os.Create(fmt.Sprintf("%s/file%d", fs.Dir, n))
				if err != nil {
					t.Error(err)
					return
				}
				_, err = f.Write(make([]byte, 4<<20))
				if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		writers.Wait()
		passed := time.Since(begin)
		sums, err := probe.Read(fs.Disk.Dev)
		if err != nil {
			t.Fatal(err)
		}
		var all disktime.Sums
		for _, sum := range sums {
			all = all.Add(sum)
		}
		t.Logf("in %v: %+v", passed, all)
		if all.AloneNanoseconds == 0 || all.AloneNanoseconds >= all.ServedNanoseconds || time.Duration(all.AloneNanoseconds) > passed {
			t.Errorf("in %v: %+v; want less than all times served, and no more than passed", passed, all)
		}
		return false
	})
}

func TestSumsSinceAReading(t *testing.T) {
	a, b := disktime.Sums{Requests: 1, Bytes: 2, QueuedNanoseconds: 3, ServedNanoseconds: 4, AloneNanoseconds: 5}, disktime.Sums{Requests: 10, Bytes: 20, QueuedNanoseconds: 30, ServedNanoseconds: 40, AloneNanoseconds: 50}
	if got := a.Add(b).Less(a); got != b {
		t.Errorf("%+v; want %+v", got, b)
	}
	if got := a.Less(b); got != (disktime.Sums{}) {
		t.Errorf("%+v from a counter that went back", got)
	}
}

func TestAReadingSinceAnother(t *testing.T) {
	sda, sdb := blockdev.Dev{Major: 8}, blockdev.Dev{Major: 8, Minor: 16}
	data, flush := disktime.Key{Cgroup: 1, Class: disktime.Data}, disktime.Key{Class: disktime.Flush}
	move := disktime.MoveKey{Of: data, Before: data}
	reading := func(onA, onB, flushes, moves uint64) disktime.Reading {
		return disktime.Reading{
			Sums:  map[blockdev.Dev]map[disktime.Key]disktime.Sums{sda: {data: {Requests: onA, Bytes: 10 * onA}, flush: {Requests: flushes}}, sdb: {data: {Requests: onB}}},
			Moves: map[blockdev.Dev]map[disktime.MoveKey]disktime.Moves{sda: {move: {Requests: moves, Roots: 3 * moves}}},
		}
	}
	got := reading(30, 5, 7, 9).Less(reading(10, 5, 0, 4))
	want := disktime.Reading{
		Sums:  map[blockdev.Dev]map[disktime.Key]disktime.Sums{sda: {data: {Requests: 20, Bytes: 200}, flush: {Requests: 7}}},
		Moves: map[blockdev.Dev]map[disktime.MoveKey]disktime.Moves{sda: {move: {Requests: 5, Roots: 15}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v; want %+v", got, want)
	}
}

func TestMovesSinceAReading(t *testing.T) {
	a, b := disktime.Moves{Requests: 1, Roots: 2, Sectors: 3, AloneMicroseconds: 4, Products: 5}, disktime.Moves{Requests: 10, Roots: 20, Sectors: 30, AloneMicroseconds: 40, Products: 50}
	if got := a.Add(b).Less(a); got != b {
		t.Errorf("%+v; want %+v", got, b)
	}
	if got := a.Less(b); got != (disktime.Moves{}) {
		t.Errorf("%+v from a counter that went back", got)
	}
}
