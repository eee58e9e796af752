package volume

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
)

func debugfs(t *testing.T, image string, request string) {
	t.Helper()
	if output, err := exec.Command("debugfs", "-w", "-R", request, image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

func TestACheckReportsDamageAndRepairsIt(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	want := r.newFilled(name, 32<<20, CreateOptions{})
	if report, err := r.pool.Check(t.Context(), name, CheckOptions{}); err != nil || !report.Clean || report.Corrected || report.Replayed || report.Report == "" {
		t.Fatalf("%+v, %v", report, err)
	}
	debugfs(t, r.pool.files.Image(name), "set_inode_field dataa links_count 3") // e2fsck -p corrects it
	before, err := os.ReadFile(r.pool.files.Image(name))
	if err != nil {
		t.Fatal(err)
	}
	if report, err := r.pool.Check(t.Context(), name, CheckOptions{}); !errors.Is(err, ErrCorrupt) || report.Clean || report.Report == "" {
		t.Errorf("%+v, %v", report, err)
	}
	if after, err := os.ReadFile(r.pool.files.Image(name)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("looking changed it (%v)", err)
	}
	if report, err := r.pool.Check(t.Context(), name, CheckOptions{Repair: true}); err != nil || !report.Clean || !report.Corrected {
		t.Errorf("%+v, %v", report, err)
	}
	r.wantWhole(name)
	r.wantFiles(name, want)
	// e2fsck does not correct this without being asked: there is no root directory.
	bad := r.name("bad")
	r.create(bad, CreateOptions{})
	debugfs(t, r.pool.files.Image(bad), "clri <2>")
	for _, repair := range []bool{false, true} {
		if report, err := r.pool.Check(t.Context(), bad, CheckOptions{Repair: repair}); !errors.Is(err, ErrCorrupt) || report.Clean {
			t.Errorf("repair %v: %+v, %v", repair, report, err)
		}
	}
	for _, size := range []uint64{32 << 20, 20 << 20} {
		if _, err := r.pool.Resize(t.Context(), bad, size, ResizeOptions{}); err == nil {
			t.Errorf("a damaged volume was resized to %d", size)
		}
	}
	if status := r.inspect(bad); status.SizeBytes != testBytes || status.Resize != 0 {
		t.Errorf("%+v", status)
	}
	if _, err := r.pool.Clone(t.Context(), bad, "", r.name("x"), CloneOptions{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a damaged volume was cloned: %v", err)
	}
	r.attach(name, AttachOptions{Placement: PlaceNone})
	if _, err := r.pool.Check(t.Context(), name, CheckOptions{}); !errors.Is(err, ErrBusy) {
		t.Errorf("attached: %v", err)
	}
	r.detach(name)
	if _, err := r.pool.Check(t.Context(), name, CheckOptions{Snapshot: "none"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	if _, err := r.pool.Check(t.Context(), name, CheckOptions{Snapshot: "none", Repair: true}); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// crashed makes an attached volume's image as a crash of the host leaves it.
func (r *rig) crashed(name string) (records uint64) {
	r.t.Helper()
	t := r.t.(*testing.T)
	r.create(name, CreateOptions{SizeBytes: 32 << 20})
	r.attach(name, AttachOptions{Placement: PlaceNone})
	writer := startRecords(t, r.target(name))
	writer.await(30)
	writer.end()
	// Nothing prevents it, and the journal is not replayed.
	image := filepath.Join(r.home, "crashed")
	if err := imagefile.MakeSparse(image, 32<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := imagefile.Copy(t.Context(), r.pool.files.Image(name), image, 32<<20, nil, nil); err != nil {
		t.Fatal(err)
	}
	r.detach(name)
	if err := os.Rename(image, r.pool.files.Image(name)); err != nil {
		t.Fatal(err)
	}
	s, err := ext4.ReadSuperblock(r.pool.files.Image(name))
	if err != nil || !s.NeedsRecovery {
		t.Fatalf("%+v, %v: nothing is to be replayed", s, err)
	}
	return writer.synced.Load()
}

func TestACheckReplaysTheJournalOnACopy(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	least := r.crashed(name)
	before, err := os.ReadFile(r.pool.files.Image(name))
	if err != nil {
		t.Fatal(err)
	}
	files := r.files()
	if report, err := r.pool.Check(t.Context(), name, CheckOptions{}); err != nil || !report.Clean || !report.Replayed || report.Corrected {
		t.Errorf("%+v, %v", report, err)
	}
	if after, err := os.ReadFile(r.pool.files.Image(name)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("looking changed it (%v)", err)
	}
	r.wantSame("pool", r.files(), files)
	// A snapshot keeps it as it is, and a clone of it is clean.
	r.snapshot(name, "s")
	if report, err := r.pool.Check(t.Context(), name, CheckOptions{Snapshot: "s"}); err != nil || !report.Clean || !report.Replayed {
		t.Errorf("%+v, %v", report, err)
	}
	if _, err := r.pool.Clone(t.Context(), name, "s", r.name("clone"), CloneOptions{}); err != nil {
		t.Fatal(err)
	}
	r.wantWhole(r.name("clone"))
	// Shrinking replays it first.
	if _, err := r.pool.Resize(t.Context(), r.name("clone"), 28<<20, ResizeOptions{}); err != nil {
		t.Error(err)
	}
	if report, err := r.pool.Check(t.Context(), name, CheckOptions{Repair: true}); err != nil || !report.Clean || !report.Replayed {
		t.Errorf("%+v, %v", report, err)
	}
	for _, name := range []string{name, r.name("clone")} {
		r.wantWhole(name)
		r.attach(name, AttachOptions{Placement: PlaceNone})
		wantRecords(t, r.target(name), least)
		r.detach(name)
	}
}
