package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
)

func TestACloneIsAVolumeOfItsOwn(t *testing.T) {
	onEachPool(t, func(t *testing.T, r *rig, how Method) {
		name, clone := r.name("db"), r.name("clone")
		r.create(name, CreateOptions{Weight: 300, Labels: map[string]string{"app": "db"}, MountOptions: "data=ordered", NoAtime: true})
		r.attach(name, AttachOptions{Placement: PlaceNone})
		if err := os.WriteFile(filepath.Join(r.target(name), "file"), []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
		// Of an attached volume; then both are attached at the same time.
		record, err := r.pool.Clone(t.Context(), name, "", clone, CloneOptions{Weight: 500})
		if err != nil {
			t.Fatal(err)
		}
		source := r.inspect(name)
		if record.Name != clone || record.ID == source.ID || record.SizeBytes != testBytes || record.Weight != 500 || record.Labels["app"] != "db" ||
			record.MountOptions != "data=ordered" || !record.NoAtime || record.Origin != name || record.Attachment != nil || record.Frozen {
			t.Errorf("%+v", record)
		}
		s, err := ext4.ReadSuperblock(r.pool.files.Image(clone))
		if err != nil || s.UUID.String() != record.ID || !s.HasJournal || s.NeedsRecovery {
			t.Errorf("%+v, %v", s, err)
		}
		r.wantClean(r.pool.files.Image(clone))
		shared := how == Reflink
		if got := sharesBlocks(t, r.pool.files.Image(clone)); got != shared {
			t.Errorf("shares blocks: %v, want %v", got, shared)
		}
		r.attach(clone, AttachOptions{Placement: PlaceNone})
		if text, err := os.ReadFile(filepath.Join(r.target(clone), "file")); string(text) != "data" {
			t.Errorf("%q, %v", text, err)
		}
		if err := os.WriteFile(filepath.Join(r.target(clone), "file"), []byte("other"), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(r.target(name), "file")); string(text) != "data" {
			t.Errorf("the source changed with the clone: %q, %v", text, err)
		}
		r.detach(clone)
		r.detach(name)
		r.wantDetached(name, clone)

		for what, try := range map[string]func() (Record, error){
			"taken":       func() (Record, error) { return r.pool.Clone(t.Context(), name, "", clone, CloneOptions{}) },
			"itself":      func() (Record, error) { return r.pool.Clone(t.Context(), name, "", name, CloneOptions{}) },
			"no snapshot": func() (Record, error) { return r.pool.Clone(t.Context(), name, "s", r.name("x"), CloneOptions{}) },
			"no source":   func() (Record, error) { return r.pool.Clone(t.Context(), r.name("y"), "", r.name("x"), CloneOptions{}) },
			"no name":     func() (Record, error) { return r.pool.Clone(t.Context(), name, "", "a/b", CloneOptions{}) },
		} {
			want := map[string]error{"taken": ErrExists, "itself": ErrExists, "no snapshot": ErrNotFound, "no source": ErrNotFound, "no name": ErrInvalid}[what]
			if _, err := try(); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		r.wantDetached(name, clone)
	})
}

func TestAFullVolumesCloneIsFull(t *testing.T) {
	onEachPool(t, func(t *testing.T, r *rig, _ Method) {
		name, clone := r.name("db"), r.name("clone")
		r.create(name, CreateOptions{Provision: Full})
		if _, err := r.pool.Clone(t.Context(), name, "", clone, CloneOptions{}); err != nil {
			t.Fatal(err)
		}
		if status := r.wantWhole(clone); status.Provision != Full || status.AllocatedBytes < testBytes {
			t.Errorf("%+v", status)
		}
		if sharesBlocks(t, r.pool.files.Image(clone)) {
			t.Error("it shares blocks, which its writes would have to allocate")
		}
	})
}

func TestACloneTakesItsJournalInside(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(r.home, "journal")
	if err := imagefile.MakeSparse(file, 16<<20); err != nil {
		t.Fatal(err)
	}
	journal, err := blockdev.Attach(file, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		r.detach(r.name("db"))
		if err := journal.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	name, clone := r.name("db"), r.name("clone")
	r.create(name, CreateOptions{SizeBytes: 32 << 20, JournalDevice: journal.Node()})
	r.attach(name, AttachOptions{Placement: PlaceNone})
	writer := startRecords(t, r.target(name))
	writer.await(20)
	least := writer.synced.Load()
	record, err := r.pool.Clone(t.Context(), name, "", clone, CloneOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if record.JournalDevice != "" {
		t.Errorf("%+v", record)
	}
	r.wantClean(r.pool.files.Image(clone))
	s, err := ext4.ReadSuperblock(r.pool.files.Image(clone))
	if err != nil || s.External() || !s.HasJournal {
		t.Errorf("%+v, %v", s, err)
	}
	r.attach(clone, AttachOptions{Placement: PlaceNone})
	wantRecords(t, r.target(clone), least)
	// The source still has its own journal.
	writer.await(5)
	writer.end()
	r.detach(name)
	r.attach(name, AttachOptions{Placement: PlaceNone})
	wantRecords(t, r.target(name), writer.synced.Load())
	var discard discarded
	if err := r.pool.Send(t.Context(), name, "", "", &discard, SendOptions{}); !errors.Is(err, ErrUnsupported) || discard != 0 {
		t.Errorf("%v, after %d bytes", err, discard)
	}
}

// discarded counts what is written to it.
type discarded int

func (d *discarded) Write(b []byte) (int, error) {
	*d += discarded(len(b))
	return len(b), nil
}
