package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/filetest"
)

func TestATrimGivesBlocksBack(t *testing.T) {
	onEachPool(t, func(t *testing.T, r *rig, _ Method) {
		name := r.name("db")
		r.create(name, CreateOptions{SizeBytes: 128 << 20})
		r.attach(name, AttachOptions{Placement: PlaceNone})
		dir := r.target(name)
		fill(t, dir, 64<<20)
		if err := atomicfile.SyncFileSystem(dir); err != nil {
			t.Fatal(err)
		}
		kept := sumOfFiles(t, dir)
		if err := os.WriteFile(filepath.Join(dir, "more"), make([]byte, 8<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := atomicfile.SyncFileSystem(dir); err != nil {
			t.Fatal(err)
		}
		before := filetest.AllocatedBytes(t, r.pool.files.Image(name))
		if err := os.Remove(filepath.Join(dir, "more")); err != nil {
			t.Fatal(err)
		}
		if err := atomicfile.SyncFileSystem(dir); err != nil {
			t.Fatal(err)
		}
		trimmed, err := r.pool.Trim(t.Context(), name)
		if err != nil || trimmed < 8<<20 {
			t.Fatalf("%d bytes, %v", trimmed, err)
		}
		// btrfs tells allocations after its next commit.
		if err := atomicfile.SyncFileSystem(r.pool.dir); err != nil {
			t.Fatal(err)
		}
		if after := filetest.AllocatedBytes(t, r.pool.files.Image(name)); before-after < 8<<20 {
			t.Errorf("the image took %d bytes and takes %d", before, after)
		}
		if sumOfFiles(t, dir) != kept {
			t.Error("a trim changed files")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.pool.Trim(ctx, name); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		r.detach(name)
		r.wantWhole(name)
		r.wantFiles(name, kept)
		if _, err := r.pool.Trim(t.Context(), name); !errors.Is(err, ErrDetached) {
			t.Errorf("%v", err)
		}
		r.attach(name, AttachOptions{Placement: PlaceNone, ReadOnly: true})
		if _, err := r.pool.Trim(t.Context(), name); !errors.Is(err, ErrBusy) {
			t.Errorf("%v", err)
		}
	})
}

func TestAFullVolumeKeepsItsBlocks(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	r.create(name, CreateOptions{Provision: Full})
	r.attach(name, AttachOptions{Placement: PlaceNone})
	if _, err := r.pool.Trim(t.Context(), name); !errors.Is(err, ErrUnsupported) {
		t.Errorf("%v", err)
	}
	if got := filetest.AllocatedBytes(t, r.pool.files.Image(name)); got < testBytes {
		t.Errorf("%d bytes are left", got)
	}
}

// The file system that is mounted over it is not the volume's.
func TestWhatIsMountedOverAVolumeIsNotTrimmed(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{Placement: PlaceNone})
	other := r.name("other")
	r.create(other, CreateOptions{SizeBytes: 2 * testBytes})
	over := r.attach(other, AttachOptions{Placement: PlaceNone})
	if err := ext4.Unmount(t.Context(), r.target(other)); err != nil {
		t.Fatal(err)
	}
	if err := ext4.Mount(over.LoopDevice, r.target(name), ext4.MountOptions{}); err != nil {
		t.Fatal(err)
	}
	trimmed, err := r.pool.Trim(t.Context(), name)
	wantError(t, err, ErrBusy, "something else is mounted over it on "+r.target(name))
	if trimmed != 0 {
		t.Errorf("%d bytes of another file system were trimmed", trimmed)
	}
	if err := ext4.Unmount(t.Context(), r.target(name)); err != nil {
		t.Fatal(err)
	}
	if trimmed, err := r.pool.Trim(t.Context(), name); err != nil || trimmed == 0 {
		t.Errorf("%d bytes, %v", trimmed, err)
	}
	r.clear()
}
