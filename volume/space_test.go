package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAFullPoolLosesNothingAndCanBeEmptied(t *testing.T) {
	r := newHome(t)
	// -m 0: no blocks are reserved for root.
	disk := r.newDisk(96<<20, 512, "", "-m", "0")
	r.open(filepath.Join(disk.dir, "pool"))
	kept, thin, spare := r.name("kept"), r.name("thin"), r.name("spare")
	r.keep(kept, CreateOptions{Provision: Full})
	r.create(spare, CreateOptions{Provision: Full})
	r.create(thin, CreateOptions{SizeBytes: 64 << 20})
	r.attach(thin, AttachOptions{})
	if err := writeSynced(filepath.Join(r.target(thin), keptFile)); err != nil {
		t.Fatal(err)
	}
	r.attach(kept, AttachOptions{})

	_, err := r.pool.Create(t.Context(), r.name("big"), CreateOptions{SizeBytes: 256 << 20, Provision: Full})
	wantError(t, err, ErrNoSpace, "allocate")
	r.wantTidy()

	fillUp(t, filepath.Join(disk.dir, "ballast"))
	// A thin volume finds out when it writes.
	file, err := os.Create(filepath.Join(r.target(thin), "more"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		if _, err = file.Write(make([]byte, 1<<20)); err == nil {
			err = file.Sync()
		}
	}
	_ = file.Close()
	t.Logf("writing to a thin volume in a full pool: %v", err)

	_, err = r.pool.Create(t.Context(), r.name("new"), CreateOptions{SizeBytes: testBytes})
	if !errors.Is(err, ErrNoSpace) {
		t.Errorf("created in a full pool: %v", err)
	}
	_, err = r.pool.Attach(t.Context(), spare, AttachOptions{Target: r.target(spare)})
	if !errors.Is(err, ErrNoSpace) {
		t.Errorf("attached in a full pool: %v", err)
	}
	r.wantTidy()
	// The commands that make room work.
	if err := r.pool.Detach(t.Context(), kept); err != nil {
		t.Error(err)
	}
	if loops, err := r.loopsOf(kept); err != nil || len(loops) > 0 {
		t.Errorf("%v, %v", loops, err)
	}
	if err := r.pool.Delete(t.Context(), spare, DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := checkContent(filepath.Join(r.target(thin), keptFile)); err != nil {
		t.Error(err)
	}
	r.detach(thin)
	r.repair()
	r.wantDetached(kept, thin)
	r.wantKept(kept)
	// The journal of the thin volume was cut short: e2fsck has something to do, but
	// what was synced is there.
	r.attach(thin, AttachOptions{})
	if err := checkContent(filepath.Join(r.target(thin), keptFile)); err != nil {
		t.Error(err)
	}
	r.clear()
}

// fillUp takes all the space that a file system has left.
func fillUp(t testing.TB, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, piece := range []int{1 << 20, 4096} {
		for err = error(nil); err == nil; {
			if _, err = file.Write(make([]byte, piece)); err == nil {
				err = file.Sync()
			}
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// This includes a volume whose record can no longer say that it is detached.
func TestAVolumeCanBeDeletedWithoutRoomForItsRecord(t *testing.T) {
	r := newHome(t)
	disk := r.newDisk(64<<20, 512, "", "-m", "0")
	r.open(filepath.Join(disk.dir, "pool"))
	name := r.name("v")
	r.create(name, CreateOptions{Provision: Full})
	r.attach(name, AttachOptions{})
	fillUp(t, filepath.Join(disk.dir, "ballast"))
	r.detach(name)
	r.wantSame("host", r.host(), r.before)
	if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
		t.Error(err)
	}
	r.wantDetached()
}

func TestTheQuotaIsNeverExceeded(t *testing.T) {
	r := newHome(t)
	// The name of a directory is not used as a pattern.
	r.open(filepath.Join(r.home, "a [pool] of *"))
	const fit = 5
	if err := r.pool.SetQuota(t.Context(), fit*testBytes+testBytes/2); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var most uint64
	var watcher, creators sync.WaitGroup
	watcher.Go(func() {
		for {
			usage, err := r.pool.Usage()
			if err != nil {
				t.Error(err)
			}
			most = max(most, usage.PromisedBytes)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for n := range 20 {
		creators.Go(func() {
			_, err := r.pool.Create(t.Context(), r.name(fmt.Sprint("v", n)), CreateOptions{SizeBytes: testBytes})
			if err != nil && !errors.Is(err, ErrNoSpace) {
				t.Error(err)
			}
		})
	}
	creators.Wait()
	close(stop)
	watcher.Wait()
	names, err := r.pool.files.Names()
	if err != nil || len(names) != fit {
		t.Errorf("%d volumes, %v; %d have room", len(names), err, fit)
	}
	if most > fit*testBytes {
		t.Errorf("%d bytes were promised, the quota has room for %d", most, fit*testBytes)
	}
	r.wantTidy()
	r.clear()
}
