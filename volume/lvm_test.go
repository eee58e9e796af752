package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/records"
)

// The work is the only record of its logical volume.
func TestTheWorkOfALogicalVolumeThatCannotBeRemovedStays(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	o, err := CreateOptions{SizeBytes: testBytes, VolumeGroup: "daybook-none"}.complete()
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(r.pool.dir, store.WorkDir, records.NewID())
	if err := os.Mkdir(work, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := store.WriteVolume(work, o.record(r.name("lost"), testBytes, 512)); err != nil {
		t.Fatal(err)
	}
	t.Run("without lvm2", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		done, err := r.pool.Repair(t.Context())
		wantError(t, err, ErrUnsupported, work)
		if !errors.Is(err, ErrWorkLeft) || done.Work != 0 || len(done.Damaged) > 0 || !exists(filepath.Join(work, store.RecordFile)) {
			t.Errorf("%+v, %v", done, err)
		}
	})
	if err := os.RemoveAll(work); err != nil {
		t.Fatal(err)
	}
	r.wantKept(name)
	r.clear()
}

// Without lvm2, or in a volume group that is not there, nothing is started.
func TestNoWorkIsMadeInAVolumeGroupThatIsNotThere(t *testing.T) {
	r := newRig(t)
	t.Setenv("PATH", t.TempDir())
	_, err := r.pool.Create(t.Context(), r.name("v"), CreateOptions{SizeBytes: testBytes, VolumeGroup: "daybook-none"})
	wantError(t, err, ErrUnsupported, "install lvm2")
	if work, err := os.ReadDir(filepath.Join(r.pool.dir, store.WorkDir)); err != nil || len(work) > 0 {
		t.Errorf("left: %v, %v", work, err)
	}
}
