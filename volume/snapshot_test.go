package volume

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/filetest"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// recordWriter appends records to a file and calls fsync for each, like the log of
// a database, while other processes change the file system.
type recordWriter struct {
	t       *testing.T
	dir     string
	synced  atomic.Uint64 // number of records that are on disk, according to fsync
	stop    context.CancelFunc
	group   sync.WaitGroup
	stopped sync.Once
}

const syncedRecordBytes = 4096

func syncedRecord(number uint64) []byte {
	b := make([]byte, syncedRecordBytes)
	for at := 0; at < len(b)-4; at += 8 {
		binary.LittleEndian.PutUint64(b[at:], number+uint64(at))
	}
	binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func startRecords(t *testing.T, dir string) *recordWriter {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w := &recordWriter{t: t, dir: dir, stop: stop}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	w.group.Go(func() {
		defer log.Close()
		for n := uint64(0); ctx.Err() == nil; n++ {
			_, err := log.Write(syncedRecord(n))
			if err = errors.Join(err, log.Sync()); err != nil {
				t.Errorf("record %d: %v", n, err)
				return
			}
			w.synced.Store(n + 1)
		}
	})
	w.group.Go(func() {
		// Files that are created, changed and deleted.
		piece := make([]byte, 64<<10)
		for n := 0; ctx.Err() == nil; n++ {
			for i := range piece {
				piece[i] = byte(n + i)
			}
			path := filepath.Join(dir, "file"+strconv.Itoa(n%50))
			if err := os.WriteFile(path, piece, 0o600); err != nil && !errors.Is(err, unix.ENOSPC) {
				t.Error(err)
				return
			}
			if n%3 == 0 {
				_ = os.Remove(filepath.Join(dir, "file"+strconv.Itoa((n+20)%50)))
			}
		}
	})
	t.Cleanup(w.end)
	return w
}

func (w *recordWriter) end() { w.stopped.Do(func() { w.stop(); w.group.Wait() }) }

// await waits for that many more records.
func (w *recordWriter) await(more uint64) {
	w.t.Helper()
	from := w.synced.Load()
	awaittest.Until(w.t, awaittest.Patience, "the writer goes on", func() bool { return w.synced.Load() >= from+more })
}

// wantRecords fails the test unless a directory has at least that many records,
// complete and in order.
func wantRecords(t *testing.T, dir string, least uint64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	whole := uint64(len(text) / syncedRecordBytes)
	if whole < least {
		t.Errorf("%d records are there, and %d were fsynced", whole, least)
	}
	for n := range min(whole, least) {
		if !bytes.Equal(text[n*syncedRecordBytes:(n+1)*syncedRecordBytes], syncedRecord(n)) {
			t.Fatalf("record %d of %d is damaged", n, least)
		}
	}
}

// wantWritable fails the test if a file system is frozen.
func wantWritable(t *testing.T, dir string) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		path := filepath.Join(dir, "writable")
		err := os.WriteFile(path, []byte("x"), 0o600)
		if err == nil {
			err = imagefile.Sync(path)
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(awaittest.Patience):
		t.Error("the file system is frozen")
	}
}

func TestASnapshotUnderLoadIsWhole(t *testing.T) {
	onEachPool(t, func(t *testing.T, r *rig, how Method) {
		name := r.name("db")
		r.create(name, CreateOptions{SizeBytes: 96 << 20})
		r.attach(name, AttachOptions{Placement: PlaceNone})
		writer := startRecords(t, r.target(name))
		least := map[string]uint64{}
		for _, snapshot := range []string{"s1", "s2", "s3"} {
			writer.await(20)
			least[snapshot] = writer.synced.Load()
			began := time.Now()
			record, err := r.pool.Snapshot(t.Context(), name, snapshot, SnapshotOptions{MaxFreeze: 10 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(began).Seconds()
			if record.Method != how || record.FrozenSeconds <= 0 || record.FrozenSeconds > took || record.SizeBytes != 96<<20 || record.Name != snapshot {
				t.Errorf("%+v, in %v s", record, took)
			}
			t.Logf("%s: frozen %.4f s of %.4f s", record.Method, record.FrozenSeconds, took)
			writer.await(1) // it continues
		}
		status := r.inspect(name)
		if status.Frozen || status.Problem != "" || len(status.Snapshots) != 3 {
			t.Errorf("%+v", status)
		}
		// Snapshots do not change with the volume.
		writer.end()
		for snapshot, want := range least {
			r.wantClean(r.pool.files.SnapshotImage(name, snapshot))
			if report, err := r.pool.Check(t.Context(), name, CheckOptions{Snapshot: snapshot}); err != nil || !report.Clean || report.Replayed || report.Report == "" {
				t.Errorf("%s: %+v, %v", snapshot, report, err)
			}
			clone := r.name("of-" + snapshot)
			if _, err := r.pool.Clone(t.Context(), name, snapshot, clone, CloneOptions{}); err != nil {
				t.Fatal(err)
			}
			r.attach(clone, AttachOptions{Placement: PlaceNone})
			wantRecords(t, r.target(clone), want)
			r.detach(clone)
		}
		all, err := r.pool.Snapshots(t.Context(), name)
		if err != nil || len(all) != 3 || all[0].Name != "s1" || all[2].Name != "s3" || all[0].AllocatedBytes == 0 {
			t.Errorf("%+v, %v", all, err)
		}
		if work, err := os.ReadDir(filepath.Join(r.pool.dir, store.WorkDir)); err != nil || len(work) != 0 {
			t.Errorf("left in work: %v, %v", work, err)
		}
	})
}

func TestASnapshotOfADetachedVolumeHasNoFreeze(t *testing.T) {
	onEachPool(t, func(t *testing.T, r *rig, how Method) {
		name := r.name("db")
		r.create(name, CreateOptions{})
		record, err := r.pool.Snapshot(t.Context(), name, "s", SnapshotOptions{})
		if err != nil || record.Method != how || record.FrozenSeconds != 0 {
			t.Errorf("%+v, %v", record, err)
		}
		filetest.WantEqual(t, r.pool.files.SnapshotImage(name, "s"), r.pool.files.Image(name))
		for snapshot, want := range map[string]error{"s": ErrExists, "": ErrInvalid, "../x": ErrInvalid} {
			if _, err := r.pool.Snapshot(t.Context(), name, snapshot, SnapshotOptions{}); !errors.Is(err, want) {
				t.Errorf("%q: %v, want %v", snapshot, err, want)
			}
		}
		if _, err := r.pool.Snapshot(t.Context(), r.name("none"), "s", SnapshotOptions{}); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		usage, err := r.pool.Usage()
		if err != nil || usage.PromisedBytes != 2*testBytes {
			t.Errorf("%+v, %v", usage, err)
		}
		if err := r.pool.DeleteSnapshot(t.Context(), name, "s"); err != nil {
			t.Error(err)
		}
		r.wantDetached(name)
	})
}

func TestASnapshotThatFailsThaws(t *testing.T) {
	onEachPool(t, func(t *testing.T, r *rig, how Method) {
		name := r.name("db")
		r.create(name, CreateOptions{})
		r.attach(name, AttachOptions{Placement: PlaceNone})
		writer := startRecords(t, r.target(name))
		writer.await(5)
		for _, step := range []string{"work", "frozen", "thawed"} {
			if step == "frozen" && how == Reflink {
				continue // it is one system call, which does not check the context
			}
			ctx, cancel := context.WithCancel(t.Context())
			frozen := false
			r.pool.engine.Stop = func(at string) {
				frozen = frozen || at == "frozen"
				if at == step {
					cancel()
				}
			}
			_, err := r.pool.Snapshot(ctx, name, "s", SnapshotOptions{})
			r.pool.engine.Stop = func(string) {}
			cancel()
			if step == "thawed" {
				// What was made by then is visible.
				if err != nil {
					t.Errorf("%s: %v", step, err)
				}
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", step, err)
			} else if names := r.pool.files.SnapshotNames(name); len(names) != 0 {
				t.Errorf("%s: left: %q", step, names)
			}
			if frozen != (step != "work") {
				t.Errorf("%s: was frozen: %v", step, frozen)
			}
			wantWritable(t, r.target(name))
			if status := r.inspect(name); status.Frozen {
				t.Errorf("%s: %+v", step, status)
			}
		}
		// A freeze by another process stays.
		if err := ioctlTarget(r.target(name), fiFreeze); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), awaittest.Patience)
		defer cancel()
		_, err := r.pool.Snapshot(ctx, name, "s2", SnapshotOptions{})
		if thawErr := ioctlTarget(r.target(name), fiThaw); thawErr != nil {
			t.Errorf("it was thawed: %v", thawErr)
		}
		if !errors.Is(err, ErrBusy) {
			t.Errorf("%v", err)
		}
		wantWritable(t, r.target(name))
	})
}

func TestRepairThawsWhatADeadSnapshotFroze(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{Placement: PlaceNone})
	r.abandonFrozen(name)
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(filepath.Join(r.target(name), "file"), []byte("x"), 0o600) }()
	r.repair()
	select {
	case err := <-written:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(awaittest.Patience):
		t.Error("the writer is blocked still")
		_ = ioctlTarget(r.target(name), fiThaw)
	}
	if status := r.inspect(name); status.Frozen {
		t.Errorf("%+v", status)
	}
}

func TestASnapshotHoldsToTheQuota(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{Placement: PlaceNone})
	if err := r.pool.SetQuota(t.Context(), 2*testBytes-1); err != nil {
		t.Fatal(err)
	}
	frozen := false
	r.pool.engine.Stop = func(at string) { frozen = frozen || at == "freezing" }
	if _, err := r.pool.Snapshot(t.Context(), name, "s", SnapshotOptions{}); !errors.Is(err, ErrNoSpace) || frozen {
		t.Errorf("%v, frozen %v", err, frozen)
	}
	r.detach(name)
	r.wantDetached(name)
}

func TestADamagedSnapshotRecordIsReported(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	r.create(name, CreateOptions{})
	if _, err := r.pool.Snapshot(t.Context(), name, "s", SnapshotOptions{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.pool.files.SnapshotDir(name, "s"), store.SnapshotFile)
	for _, text := range []string{"", "{", `{"format":0}`, `{"format":1,"name":"s","method":"copy","size_bytes":1}`, `{"format":1,"name":"x","method":"copy","size_bytes":16777216}`, `{"unknown":1}`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := r.pool.Snapshots(t.Context(), name); err != nil || len(all) != 1 || all[0].Problem == "" || all[0].Name != "s" {
			t.Errorf("%q: %+v, %v", text, all, err)
		}
		if _, err := r.pool.Clone(t.Context(), name, "s", r.name("c"), CloneOptions{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.Check(t.Context(), name, CheckOptions{Snapshot: "s"}); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
	if err := r.pool.DeleteSnapshot(t.Context(), name, "s"); err != nil {
		t.Errorf("a damaged snapshot cannot be deleted: %v", err)
	}
	if _, err := os.Stat(r.pool.files.SnapshotDir(name, "s")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
