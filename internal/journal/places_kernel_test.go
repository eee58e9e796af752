package journal

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4test"
)

// changeFilesystem changes what the programs know of a file system.
func changeFilesystem(t *testing.T, p *Probe, dev uint32, change func(*attributionFilesystem)) {
	t.Helper()
	var at *uint32
	if err := p.visitFilesystemPlaces(func(n uint32, place attributionFilesystemPlace) error {
		if place.Dev == dev {
			at = &n
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if at != nil {
		place, err := p.filesystemPlaces.get(*at)
		if err != nil {
			t.Fatal(err)
		}
		state := attributionFilesystem(place.Filesystem)
		change(&state)
		place.Filesystem = state
		if _, err := p.filesystemPlaces.memory.WriteAt(asBytes([]attributionFilesystemPlace{place}), p.filesystemPlaces.field(*at, 0)); err != nil {
			t.Fatal(err)
		}
		return
	}
	var state attributionFilesystem
	if err := p.objects.Filesystems.Lookup(dev, &state); err != nil {
		t.Fatal(err)
	}
	change(&state)
	if err := p.objects.Filesystems.Put(dev, state); err != nil {
		t.Fatal(err)
	}
}

// takePlaces gives all places in the arrays to others.
func takePlaces(t *testing.T, p *Probe) {
	t.Helper()
	const other = 4711
	takeAll(t, p.objects.FilesystemPlaces, attributionFilesystemPlace{Dev: other})
	takeAll(t, p.objects.ChargedPlaces, attributionChargedPlace{State: placeReady, Disk: other, Cgroup: RootCgroupID})
	takeAll(t, p.objects.WorkerPlaces, attributionWorkerPlace{Pid: 1 << 30})
}

// takeAll gives all places of an array to another.
func takeAll[V any](t *testing.T, array *ebpf.Variable, other V) {
	t.Helper()
	if err := array.Set(slices.Repeat([]V{other}, int(uintptr(array.Size())/unsafe.Sizeof(other)))); err != nil {
		t.Fatal(err)
	}
}

// The reference are the counters of the devices. The sums are in the arrays, or in the
// maps behind them, or in both.
func TestSumsAreCompleteWhereverTheyArePlaced(t *testing.T) {
	for name, taken := range map[string]placesTaken{
		"in arrays": {}, "in maps": {true, true}, "in arrays and then in maps": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			ext4test.Compare(t, func(t *testing.T) bool { return sumsAreComplete(t, taken) })
		})
	}
}

type placesTaken struct{ first, then bool }

func sumsAreComplete(t *testing.T, taken placesTaken) (void bool) {
	t.Helper()
	fs := ext4test.New(t, ext4test.Options{ExternalJournal: true})
	syncFS(t, fs.Dir)
	p, err := open(loadAttribution)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if taken.first {
		takePlaces(t, p)
	}
	disk := fs.Disk.Dev.Kernel()
	if err := p.Observe([]uint32{disk}); err != nil {
		t.Fatal(err)
	}
	var journal, charged uint64
	count := func() {
		t.Helper()
		events := collect(t, p)
		for _, c := range events.Commits {
			if c.Dev == fs.Dev() {
				journal += c.JournalBytes
			}
		}
		for _, w := range events.Writes {
			if w.Disk == disk && w.Kind == KindChargedWrite {
				charged += w.Bytes
			}
		}
	}
	seen := []*ext4test.SeenWrites{ext4test.NewSeenWrites(t, fs.Journal), ext4test.NewSeenWrites(t, fs.Disk)}
	before := []blockdev.Stat{stat(t, fs.Journal), stat(t, fs.Disk)}
	dirtyAndRevoke(t, fs.Dir)
	if taken.then && !taken.first {
		count()
		takePlaces(t, p)
		dirtyAndRevoke(t, fs.Dir)
	}
	// Another program can call sync meanwhile.
	atLeast := []blockdev.Stat{stat(t, fs.Journal), stat(t, fs.Disk)}
	count()
	atMost := []blockdev.Stat{stat(t, fs.Journal), stat(t, fs.Disk)}
	for _, s := range seen {
		void = s.Missed(t) != 0 || void
	}
	if void {
		return true
	}
	for n, sum := range []uint64{journal, charged} {
		low, high := atLeast[n].WriteBytes-before[n].WriteBytes, atMost[n].WriteBytes-before[n].WriteBytes
		if sum < low || sum > high || low == 0 {
			t.Errorf("%s: %d bytes counted, the device wrote %d to %d", []string{"journal", "file system"}[n], sum, low, high)
		}
	}
	var inMaps int
	var key attributionChargedKey
	var value attributionCharged
	for all := p.objects.ChargedIo.Iterate(); all.Next(&key, &value); {
		if key.Disk == disk {
			inMaps++
		}
	}
	// Without the others, two that take a place at once, or keys of one place, are there.
	if taken.then && inMaps == 0 {
		t.Error("no sum of the disk is in the map")
	}
	// No disk is observed: its places are free again.
	if err := p.Observe(nil); err != nil {
		t.Fatal(err)
	}
	if err := p.chargedPlaces.visit(func(_ uint32, place attributionChargedPlace) error {
		if place.State != 0 && place.Disk == disk {
			t.Errorf("a place is not free: %+v", place)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return false
}

// The commit is in an array or in the map.
func TestACommitInProgressIsReported(t *testing.T) {
	for name, taken := range map[string]bool{"in arrays": false, "in maps": true} {
		t.Run(name, func(t *testing.T) {
			fs := ext4test.New(t, ext4test.Options{})
			p, err := open(loadAttribution)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if taken {
				takePlaces(t, p)
			}
			syncFS(t, fs.Dir)
			if err := os.Mkdir(filepath.Join(fs.Dir, "a"), 0o755); err != nil {
				t.Fatal(err)
			}
			syncFS(t, fs.Dir)
			collect(t, p)
			const tid, bytes = 1 << 20, 12345
			changeFilesystem(t, p, fs.Dev(), func(state *attributionFilesystem) {
				state.Committer.Tid, state.Committer.JournalBytes = tid, bytes
			})
			var found uint64
			for _, c := range collect(t, p).Commits {
				if c.Dev == fs.Dev() && c.Partial && c.Tid == tid {
					found += c.JournalBytes
				}
			}
			if found != bytes {
				t.Errorf("%d bytes of a commit in progress, want %d", found, bytes)
			}
		})
	}
}

// The worker of a loop device writes and syncs its file, and so allocates the file's
// blocks; writeback does the same. The owner is one that no task is in.
func TestAKernelThreadWorksForTheOwnerOfTheFile(t *testing.T) {
	for name, load := range compilations {
		for place, taken := range map[string]bool{"in arrays": false, "in maps": true} {
			for how, flush := range map[string]func(t *testing.T, fs ext4test.FileSystem, loop *os.File){
				"sync of a loop device": func(t *testing.T, _ ext4test.FileSystem, loop *os.File) {
					if err := loop.Sync(); err != nil {
						t.Fatal(err)
					}
				},
				// The data is in the cache of the file below, but nobody syncs that file.
				"writeback": func(t *testing.T, fs ext4test.FileSystem, loop *os.File) {
					const writeAndWait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
					if err := unix.SyncFileRange(int(loop.Fd()), 0, 0, writeAndWait); err != nil {
						t.Fatal(err)
					}
					syncFS(t, fs.Dir)
				},
			} {
				t.Run(name+"/"+place+"/"+how, func(t *testing.T) {
					fs := ext4test.New(t, ext4test.Options{})
					p, err := open(load)
					if err != nil {
						t.Fatal(err)
					}
					defer p.Close()
					if taken {
						takePlaces(t, p)
					}
					path := filepath.Join(fs.Dir, "image")
					if err := os.WriteFile(path, nil, 0o600); err != nil {
						t.Fatal(err)
					}
					if err := os.Truncate(path, 8<<20); err != nil {
						t.Fatal(err)
					}
					loop, err := blockdev.Attach(path, blockdev.AttachOptions{})
					if err != nil {
						t.Fatal(err)
					}
					defer func() {
						if err := loop.Detach(t.Context()); err != nil {
							t.Error(err)
						}
					}()
					device, err := os.OpenFile(loop.Node(), os.O_WRONLY, 0)
					if err != nil {
						t.Fatal(err)
					}
					defer device.Close()
					syncFS(t, fs.Dir)
					collect(t, p)
					const owner = 4711
					setOwner(t, p, fs.Dev(), path, owner)
					if _, err := device.Write(make([]byte, 4<<20)); err != nil {
						t.Fatal(err)
					}
					flush(t, fs, device)
					syncFS(t, fs.Dir)
					var blocks int64
					for _, c := range collect(t, p).Commits {
						if c.Dev == fs.Dev() {
							blocks += c.Dirtied[owner]
						}
					}
					// A bitmap and a group descriptor. The conversion of extents needs neither.
					if blocks < 2 {
						t.Errorf("%d blocks of the journal are the owner's, want 2 or more", blocks)
					}
				})
			}
		}
	}
}

// setOwner makes a cgroup the owner of a file.
func setOwner(t *testing.T, p *Probe, dev uint32, path string, cgroup uint64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	ino := info.Sys().(*syscall.Stat_t).Ino
	if err := p.objects.Owners.Put(attributionInodeKey{Ino: ino, Dev: dev}, cgroup); err != nil {
		t.Fatal(err)
	}
	recent := p.objects.RecentOwners
	if err := recent.Put(uint32(ino)%recent.MaxEntries(), attributionRecentOwner{}); err != nil {
		t.Fatal(err)
	}
}
