package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/ext4test"
)

// placeOf is what the programs know of a file system.
func placeOf(t *testing.T, p *Probe, dev uint32) (found attributionFilesystemPlace) {
	t.Helper()
	if err := p.visitFilesystemPlaces(func(_ uint32, place attributionFilesystemPlace) error {
		if place.Dev == dev {
			found = place
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// findLogs makes a probe look for logs, or stops it.
func findLogs(p *Probe, find bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.findLogs = find
}

// withAndWithoutLog opens a probe that knows where the log of the file system is, and one that does
// not, and observes its disk.
func withAndWithoutLog(t *testing.T, fs string, dev, disk uint32) (knows, looks *Probe) {
	t.Helper()
	for _, p := range []**Probe{&knows, &looks} {
		probe, err := open(loadAttribution)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = probe.Close() })
		*p = probe
	}
	findLogs(looks, false)
	syncFS(t, fs)
	if err := os.WriteFile(filepath.Join(fs, "first"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	syncFS(t, fs) // from here on each has an entry for the file system
	for _, p := range []*Probe{knows, looks} {
		if err := p.Observe([]uint32{disk}); err != nil {
			t.Fatal(err)
		}
		collect(t, p)
	}
	if place := placeOf(t, knows, dev); place.Log.Sectors == 0 {
		t.Fatalf("the log is not known: %+v", place.Log)
	}
	if place := placeOf(t, looks, dev); place.Dev != dev || place.Log.Sectors != 0 {
		t.Fatalf("the log of the other is known: %+v", place.Log)
	}
	return knows, looks
}

// sums are the bytes of each kind on a disk, and those of the commits of a file system.
func sums(t *testing.T, p *Probe, dev, disk uint32) map[string]uint64 {
	t.Helper()
	all := make(map[string]uint64)
	events := collect(t, p)
	for _, w := range events.Writes {
		if w.Disk == disk && w.Kind != KindOutstanding && w.Kind != KindBusy && w.Kind != KindFlush {
			all[fmt.Sprintf("kind %d charged to %d of %d owned by %d", w.Kind, w.Charged, w.Of, w.Owner)] += w.Bytes
		}
	}
	for _, c := range events.Commits {
		if c.Dev == dev {
			all[fmt.Sprintf("commit %d to %d", c.Tid, c.JournalDisk)] += c.JournalBytes
		}
	}
	return all
}

// compare fails if two probes have other sums.
func compare(t *testing.T, knows, looks *Probe, dev, disk uint32) {
	t.Helper()
	a, b := sums(t, knows, dev, disk), sums(t, looks, dev, disk)
	if len(b) < 3 {
		t.Errorf("too little was written: %v", b)
	}
	for key := range b {
		if a[key] != b[key] {
			t.Errorf("%s: %d bytes by where the log is, %d by a look at what is written", key, a[key], b[key])
		}
	}
	for key := range a {
		if _, known := b[key]; !known {
			t.Errorf("%s: %d bytes by where the log is, none by a look at what is written", key, a[key])
		}
	}
}

// The reference is a probe that looks at what is written.
func TestWritesToALogAreRecognisedByWhereItIs(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	knows, looks := withAndWithoutLog(t, fs.Dir, fs.Dev(), fs.Dev())
	for range 3 {
		dirtyAndRevoke(t, fs.Dir)
		syncFS(t, fs.Dir)
		compare(t, knows, looks, fs.Dev(), fs.Dev())
	}
	if place := placeOf(t, knows, fs.Dev()); place.Log.Bytes == 0 || place.Log.Bytes > stat(t, fs.Disk).WriteBytes {
		t.Errorf("%d bytes were recognised by where the log is", place.Log.Bytes)
	}
	if place := placeOf(t, looks, fs.Dev()); place.Log.Bytes != 0 {
		t.Errorf("%d bytes were recognised by where the log is, without its place", place.Log.Bytes)
	}
}

// Where the kernel hides its functions, each bio of a journal is noted when it is submitted. What
// is recognised by its place leaves the note, and the kernel uses the memory for other writes.
func TestAWriteInTheMemoryOfAJournalsIsNoJournalWhereFunctionsAreHidden(t *testing.T) {
	hideFunctions(t)
	fs := ext4test.New(t, ext4test.Options{})
	data := filepath.Join(fs.Dir, "data")
	if err := os.WriteFile(data, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	knows, looks := withAndWithoutLog(t, fs.Dir, fs.Dev(), fs.Dev())
	direct, err := os.OpenFile(data, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	page := onePage(t)
	for n := range 100 {
		if err := os.WriteFile(filepath.Join(fs.Dir, fmt.Sprint(n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		syncFS(t, fs.Dir)
		if _, err := direct.WriteAt(page, int64(n%16)<<12); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, knows, looks, fs.Dev(), fs.Dev())
	if place := placeOf(t, knows, fs.Dev()); place.Log.Bytes == 0 {
		t.Error("nothing was recognised by where the log is")
	}
}

// The sectors of requests are those of the disk, and those of a file system of its
// partition.
func TestWritesToALogOnAPartitionAreRecognisedByWhereItIs(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	dir, dev := onPartition(t, fs, 2, ext4.MakeOptions{}, ext4.MountOptions{})
	knows, looks := withAndWithoutLog(t, dir, dev, fs.Dev())
	dirtyAndRevoke(t, dir)
	syncFS(t, dir)
	compare(t, knows, looks, dev, fs.Dev())
	if place := placeOf(t, knows, dev); place.Log.Bytes == 0 {
		t.Error("nothing was recognised by where the log is")
	}
}

// onPartition replaces a file system by one on the partition of that number of its disk, and returns
// where it is mounted, and its device.
func onPartition(t *testing.T, fs ext4test.FileSystem, number int, options ext4.MakeOptions, mount ext4.MountOptions) (dir string, dev uint32) {
	t.Helper()
	if err := ext4.Unmount(context.Background(), fs.Dir); err != nil {
		t.Fatal(err)
	}
	const bytes = 100 << 20
	partitions, err := blockdev.AddPartitions(fs.Disk.Disk, number, bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := blockdev.RemovePartitions(fs.Disk.Disk, number); err != nil {
			t.Error(err)
		}
	})
	partition := partitions[number-1]
	dir = filepath.Join(fs.Home, "partition")
	err = errors.Join(ext4.Make(context.Background(), partition.Node, options), os.Mkdir(dir, 0o700),
		ext4.Mount(partition.Node, dir, mount))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The disk is unmounted by another cleanup.
		if err := errors.Join(ext4.Unmount(context.Background(), dir), ext4.Make(context.Background(), fs.Disk.Node(), ext4.MakeOptions{}),
			ext4.Mount(fs.Disk.Node(), fs.Dir, ext4.MountOptions{})); err != nil {
			t.Error(err)
		}
	})
	return dir, partition.Dev.Kernel()
}

// After a file system has ended, something else may be where its log was.
func TestTheLogOfAFileSystemThatHasEndedIsNoLog(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	knows, looks := withAndWithoutLog(t, fs.Dir, fs.Dev(), fs.Dev())
	dirtyAndRevoke(t, fs.Dir)
	log := placeOf(t, knows, fs.Dev()).Log
	findLogs(knows, false) // as in the second before it looks again
	fs = fs.Replace(t, "", ext4.MakeOptions{JournalBytes: 4 << 20})
	syncFS(t, fs.Dir)
	file := filepath.Join(fs.Dir, "all")
	fill(t, file)
	syncFS(t, fs.Dir)
	compare(t, knows, looks, fs.Dev(), fs.Dev())
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	findLogs(knows, true)
	if err := knows.Observe([]uint32{fs.Dev()}); err != nil {
		t.Fatal(err)
	}
	dirtyAndRevoke(t, fs.Dir) // its log is looked for after the next commit
	for _, p := range []*Probe{knows, looks} {
		if err := p.Observe([]uint32{fs.Dev()}); err != nil {
			t.Fatal(err)
		}
	}
	if now := placeOf(t, knows, fs.Dev()).Log; now.Sectors == 0 || now.Sectors >= log.Sectors {
		t.Errorf("the log is %+v, after %+v", now, log)
	}
	dirtyAndRevoke(t, fs.Dir)
	compare(t, knows, looks, fs.Dev(), fs.Dev())
}

// The end of a file system is seen before its name is gone from sysfs. What is found by the name
// then is where the log of the old one was, and stays known for the next one.
func TestTheLogOfAFileSystemWhoseNameIsStillThereIsNotTold(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	knows, looks := withAndWithoutLog(t, fs.Dir, fs.Dev(), fs.Dev())
	knows.stop() // only this test looks for logs
	looks.stop()
	sys := blockdev.Host.Sys
	fakeSys(t, "fs/ext4/"+fs.Disk.Name)
	for _, real := range []string{"block", "class", "dev"} {
		if err := os.Symlink(filepath.Join(sys, real), filepath.Join(blockdev.Host.Sys, real)); err != nil {
			t.Fatal(err)
		}
	}
	look := func() attributionFilesystemPlace {
		t.Helper()
		knows.mu.Lock()
		defer knows.mu.Unlock()
		if err := knows.observeLogs(); err != nil {
			t.Fatal(err)
		}
		return placeOf(t, knows, fs.Dev())
	}
	if err := ext4.Unmount(t.Context(), fs.Dir); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if place := look(); place.Log.Sectors != 0 {
			t.Errorf("after its end the log is %+v", place.Log)
		}
	}
	if err := ext4.Mount(fs.Disk.Node(), fs.Dir, ext4.MountOptions{NoAtime: true}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(fs.Dir, "next"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	syncFS(t, fs.Dir)
	if place := look(); place.Log.Sectors == 0 {
		t.Error("the log of the next file system is not known after its first commit")
	}
}

// fill writes a file until its file system is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 1<<20))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
