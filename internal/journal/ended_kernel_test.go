package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/ext4test"
)

// smallOwners loads the programs with space for a small number of owners.
func smallOwners(room uint32) func() (*ebpf.CollectionSpec, error) {
	return func() (*ebpf.CollectionSpec, error) {
		spec, err := loadAttribution()
		if err == nil {
			spec.Maps["owners"].MaxEntries = room
		}
		return spec, err
	}
}

// ownersOf counts the inodes of a device whose owner is in the kernel's map.
func ownersOf(t *testing.T, p *Probe, dev uint32) (n int) {
	t.Helper()
	if err := p.visitOwners(func(key attributionInodeKey) error {
		if key.Dev == dev {
			n++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func writeFiles(t *testing.T, dir string, count int) {
	t.Helper()
	for i := range count {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func collect(t *testing.T, p *Probe) Events {
	t.Helper()
	events, err := p.Collect()
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func TestOwnersThatAreForgottenAreCounted(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	const room, files = 2000, 5000
	probe, err := open(smallOwners(room))
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	writeFiles(t, fs.Dir, room/2)
	if events := collect(t, probe); events.OwnersForgotten != 0 {
		t.Errorf("%d owners are forgotten of %d with room for %d", events.OwnersForgotten, room/2, room)
	}
	if n := ownersOf(t, probe, fs.Dev()); n != room/2 {
		t.Errorf("%d owners are known, want those of %d files", n, room/2)
	}
	writeFiles(t, fs.Dir, files)
	forgotten := collect(t, probe).OwnersForgotten
	present := 0 // with those of other file systems
	if err := probe.visitOwners(func(attributionInodeKey) error { present++; return nil }); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d files: %d owners are known, %d forgotten", files, present, forgotten)
	if forgotten < files-room || present > room {
		t.Errorf("%d owners are forgotten and %d are there; want at least %d and at most %d", forgotten, present, files-room, room)
	}
	if again := collect(t, probe).OwnersForgotten; again > forgotten/10 {
		t.Errorf("nothing was written, but %d more owners are forgotten", again)
	}
}

// Owners end with the file system; the next mount of the device has another
// instance.
func TestAnUnmountDeletesItsEntriesInTheKernel(t *testing.T) {
	for name, load := range compilations {
		t.Run(name, func(t *testing.T) {
			fs := ext4test.New(t, ext4test.Options{})
			unmountTakesItsEntries(t, load, fs.Dev(), fs.Dir, func() { fs.Replace(t, "", ext4.MakeOptions{}) })
		})
	}
}

// unmountTakesItsEntries works on a file system, unmounts it and works on the
// next one on the same device.
func unmountTakesItsEntries(t *testing.T, load func() (*ebpf.CollectionSpec, error), dev uint32, dir string, replace func()) {
	t.Helper()
	probe, err := open(load)
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	const files = 300
	writeFiles(t, dir, files)
	if n := ownersOf(t, probe, dev); n != files {
		t.Errorf("%d owners are known, want those of %d files", n, files)
	}
	// A journal that ended without its last commit, like an aborted one.
	left := attributionDirtiedKey{Dev: dev, Tid: 1 << 30, Cgroup: 4711}
	if err := probe.objects.Dirtied.Put(left, int64(1000)); err != nil {
		t.Fatal(err)
	}
	replace()
	writeFiles(t, dir, 1)
	syncDir(t, dir)
	events := collect(t, probe)
	instances := make(map[uint32]int)
	for _, commit := range events.Commits {
		if commit.Dev == dev {
			instances[commit.Instance]++
		}
		if commit.Dirtied[left.Cgroup] != 0 {
			t.Errorf("commit %+v pays for one of another journal", commit)
		}
	}
	if len(instances) != 2 || instances[0] == 0 || instances[1] == 0 {
		t.Errorf("commits by instance: %v, want some of 0 and of 1", instances)
	}
	for _, write := range events.Writes {
		if write.Kind == KindMetadata && write.Of == dev && write.OfInstance > 1 {
			t.Errorf("metadata of instance %d: %+v", write.OfInstance, write)
		}
	}
	if n := ownersOf(t, probe, dev); n != 1 {
		t.Errorf("%d owners are known after the unmount, want that of 1 file", n)
	}
	var blocks int64
	if err := probe.objects.Dirtied.Lookup(left, &blocks); err == nil {
		t.Errorf("a transaction of the earlier file system is still there")
	}
}

// The next file system's transactions can have the numbers of this one's, its superblock
// and its journal the memory.
func TestTheEndOfAFileSystemEndsWhatIsKnownOfIt(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	probe, err := open(loadAttribution)
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	known := func() (serials bool, journal, writes uint64) {
		t.Helper()
		state := placeOf(t, probe, fs.Dev()).Filesystem
		if err := probe.objects.OwnerChanges.Get(&writes); err != nil {
			t.Fatal(err)
		}
		return state.Transactions[0].Serial != 0 || state.Transactions[1].Serial != 0, state.Committer.Journal, writes
	}
	commitMkdir(t, probe, fs, "a")
	commitMkdir(t, probe, fs, "b")
	serials, journal, writes := known()
	if !serials || journal == 0 {
		t.Fatalf("serials %v, journal %x before the unmount, want both", serials, journal)
	}
	fs = fs.Replace(t, "", ext4.MakeOptions{})
	if serials, journal, now := known(); serials || journal != 0 || now == writes {
		t.Errorf("serials %v, journal %x, writes %d after %d: they are known after the unmount", serials, journal, now, writes)
	}
	if next := commitMkdir(t, probe, fs, "c"); next.Instance != 1 {
		t.Errorf("the commit after the unmount is %+v, want one of instance 1", next)
	}
}

func syncDir(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}
