package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/volume/records"
)

func TestProcessorsOfAListAreCounted(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-1": 2, "0-3,8": 5, "0,2,4-5": 4, "": 0, "3-1": 0, "0-": 0, "a": 0} {
		if got := countListed(list); got != want {
			t.Errorf("%q: %d processors, want %d", list, got, want)
		}
	}
	if n := processors(); n < 1 {
		t.Errorf("this machine has %d processors", n)
	}
}

func TestAJournalInMemoryHasTheUsualPartitions(t *testing.T) {
	for _, size := range []uint64{2 << 20, 8 << 20, 16 << 20, 1 << 30} {
		o, err := MemoryOptions{SizeBytes: size}.complete()
		if want := records.UsualPartitions(size, processors()); err != nil || o.Partitions != want {
			t.Errorf("%d bytes: %d partitions, %v; want %d", size, o.Partitions, err, want)
		}
	}
	o, err := MemoryOptions{SizeBytes: 64 << 20, Partitions: 1}.complete()
	if err != nil || o.Partitions != 1 {
		t.Errorf("the user chose 1 partition: %d, %v", o.Partitions, err)
	}
}

func TestAJournalThatIsInMemoryIsNotMadeAnother(t *testing.T) {
	dir := t.TempDir()
	node, link, other := filepath.Join(dir, "pmem0"), filepath.Join(dir, "link"), filepath.Join(dir, "pmem1")
	if err := errors.Join(os.WriteFile(node, nil, 0o600), os.WriteFile(other, nil, 0o600), os.Symlink(node, link)); err != nil {
		t.Fatal(err)
	}
	has := MemoryJournal{Region: node, SizeBytes: 16 << 20, Partitions: 2}
	for _, o := range []MemoryOptions{
		{}, {SizeBytes: 16 << 20}, {Partitions: 2}, {Region: node}, {Region: link}, {Region: link, SizeBytes: 16 << 20, Partitions: 2, AllowVolatile: true},
	} {
		if err := o.checkHas(has); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []MemoryOptions{
		{SizeBytes: 32 << 20}, {Partitions: 1}, {Region: other}, {Region: filepath.Join(dir, "none")}, {Region: node, SizeBytes: 16 << 20, Partitions: 4},
	} {
		if err := o.checkHas(has); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A power cut stopped the move, and the memory is gone since: its node, or its table. The
// journal was never used there.
func TestAMoveToMemoryThatIsGoneIsUndone(t *testing.T) {
	r := newRig(t)
	for what, node := range map[string]string{"no node": filepath.Join(r.home, "pmem0"), "no table": r.newDevice(16 << 20)} {
		name := r.name("v")
		r.create(name, CreateOptions{MountOptions: "nodelalloc"})
		for _, regionID := range []string{"", records.NewID()} {
			r.lie(name, func(record *Record) {
				record.JournalMemory = &MemoryJournal{
					Region: node, RegionID: regionID, Slice: records.NewID(), OffsetBytes: 1 << 20, SizeBytes: 4 << 20, Partitions: 2, Moving: records.ToMemory,
				}
				record.SetFormat()
			})
			done, err := r.pool.Repair(t.Context())
			if err != nil || done.Volumes[name] != "the journal is on the disk: its move was interrupted" {
				t.Errorf("%s, region %q: %+v, %v", what, regionID, done, err)
			}
			if status := r.inspect(name); status.JournalMemory != nil || status.MountOptions != "nodelalloc" || status.Problem != "" {
				t.Errorf("%s, region %q: %+v", what, regionID, status)
			}
		}
		r.attach(name, AttachOptions{Placement: PlaceNone})
		r.detach(name)
		if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
