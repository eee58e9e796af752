package volume

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAVolumeLivesFromCreateToDelete(t *testing.T) {
	for _, provision := range []Provision{Thin, Full} {
		t.Run(string(provision), func(t *testing.T) {
			r := newRig(t)
			name := r.name("db")
			record := r.create(name, CreateOptions{Provision: provision, UID: 33, GID: 44, Mode: os.ModeSetgid | 0o750, Labels: map[string]string{"app": "db"}})
			r.wantDetached(name)
			r.wantClean(r.pool.files.Image(name))
			status := r.inspect(name)
			if status.ID != record.ID || status.SizeBytes != testBytes || status.Labels["app"] != "db" || status.Provision != provision {
				t.Errorf("%+v", status)
			}
			if full := status.AllocatedBytes >= testBytes; full != (provision == Full) {
				t.Errorf("%d bytes are allocated of %d", status.AllocatedBytes, testBytes)
			}
			status = r.attach(name, AttachOptions{})
			r.wantWhole(name)
			target := r.target(name)
			info, err := os.Stat(target)
			if err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o750 {
				t.Errorf("the root directory is %v, %v", info, err)
			}
			if status.JournalCgroup != "/daybook/"+name+"/journal" || status.JBD2PID == 0 || status.Mountpoint != target {
				t.Errorf("%+v", status)
			}
			file := filepath.Join(target, "file")
			if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
				t.Fatal(err)
			}
			r.detach(name)
			r.wantDetached(name)
			r.wantClean(r.pool.files.Image(name))
			if _, err := os.Lstat(target); err == nil {
				t.Error("the mount point that was made is still there")
			}
			r.detach(name) // once more is no error
			r.attach(name, AttachOptions{})
			if text, err := os.ReadFile(file); string(text) != "data" {
				t.Errorf("%q, %v", text, err)
			}
			if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err == nil {
				t.Error("an attached volume was deleted")
			}
			r.detach(name)
			if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
				t.Error(err)
			}
			r.wantDetached()
		})
	}
}

// The disk seeks between the extents of an image. A file system that is made in a
// sparse file has ten of them. (On btrfs, which writes nothing in place, it has
// them in any case.) The file systems are new ones: on a used one, free space lies
// where it lies.
func TestAFullImageLiesTogether(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs"} {
		r := newRigOn(t, kind)
		name := r.name("db")
		r.create(name, CreateOptions{SizeBytes: 256 << 20, Provision: Full})
		if pieces := piecesOf(t, r.pool.files.Image(name)); pieces > 6 {
			t.Errorf("on %s, the image lies at %d places", kind, pieces)
		}
	}
}
