package volume

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// If the image's modification time changed, each flush of the volume would commit
// it in the journal of the pool's file system.
func TestOnXFSWorkInAVolumeChangesNoTimeOfItsImage(t *testing.T) {
	r := newRigOn(t, "xfs")
	name := r.name("times")
	r.create(name, CreateOptions{SizeBytes: 64 << 20, Provision: Full})
	status := r.attach(name, AttachOptions{})
	if !status.DirectIO {
		t.Error("no direct I/O")
	}
	before, err := os.Stat(r.pool.files.Image(name))
	if err != nil {
		t.Fatal(err)
	}
	// Later than the clock's tick.
	time.Sleep(50 * time.Millisecond)
	file, err := os.Create(filepath.Join(status.Mountpoint, "file"))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := file.Write(make([]byte, 64<<10)); err != nil {
			t.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(r.pool.files.Image(name))
	if err != nil {
		t.Fatal(err)
	}
	if !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the image was changed at %v, before %v", after.ModTime(), before.ModTime())
	}
	r.detach(name)
	r.wantClean(r.pool.files.Image(name))
}
