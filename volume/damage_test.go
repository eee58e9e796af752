package volume

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
)

func TestADetachedVolumeWithoutItsImageIsReportedAndCanBeDeleted(t *testing.T) {
	r := newRig(t)
	name, short := r.name("v"), r.name("short")
	for _, name := range []string{name, short} {
		r.create(name, CreateOptions{})
	}
	if err := errors.Join(os.Remove(r.pool.files.Image(name)), os.Truncate(r.pool.files.Image(short), testBytes/2)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{name, short} {
		_, err := r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target(name)})
		wantError(t, err, ErrCorrupt, "image")
		done, err := r.pool.Repair(t.Context())
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(done.Damaged[name], "image") {
			t.Errorf("%+v, %v", done, err)
		}
		if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	r.wantDetached()
}

// As long as it is mounted, the data exist. Detaching would lose them.
func TestAnAttachedVolumeWithoutItsImageIsNotDetached(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	loop := r.attach(name, AttachOptions{}).LoopDevice
	if err := os.Remove(r.pool.files.Image(name)); err != nil {
		t.Fatal(err)
	}
	err := r.pool.Detach(t.Context(), name)
	wantError(t, err, ErrCorrupt, "mount -o remount,ro "+r.target(name)+" && ")
	if done, err := r.pool.Repair(t.Context()); err != nil {
		t.Errorf("%+v, %v", done, err)
	}
	if status := r.inspect(name); status.Problem == "" || status.Mountpoint == "" {
		t.Errorf("%+v", status)
	}
	if err := checkContent(filepath.Join(r.target(name), keptFile)); err != nil {
		t.Error(err)
	}
	// As the error advises. The kernel has old content of the device in memory, and new content of
	// the file system.
	if _, err := os.ReadFile(loop); err != nil {
		t.Fatal(err)
	}
	late := bytes.Repeat([]byte("late"), 16<<10)
	if err := os.WriteFile(filepath.Join(r.target(name), "late"), late, 0o600); err != nil {
		t.Fatal(err)
	}
	_, advised, _ := strings.Cut(err.Error(), "save them: ")
	if output, err := exec.Command("sh", "-c", advised).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", advised, err, output)
	}
	if info, err := os.Stat(r.pool.files.Image(name)); err != nil || info.Mode() != 0o600 || info.Size() != testBytes {
		t.Errorf("%v, %v", info, err)
	}
	r.detach(name)
	r.attach(name, AttachOptions{})
	if err := checkContent(filepath.Join(r.target(name), keptFile)); err != nil {
		t.Error(err)
	}
	if content, err := os.ReadFile(filepath.Join(r.target(name), "late")); err != nil || !bytes.Equal(content, late) {
		t.Errorf("what was not synced: %d bytes, %v", len(content), err)
	}
	r.clear()
}

func TestAForeignLoopDeviceOnTheImageIsNeverDetached(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	foreign, err := blockdev.Attach(r.pool.files.Image(name), blockdev.AttachOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	wantThere := func() {
		t.Helper()
		if file, err := foreign.BackingFile(); err != nil || file != r.pool.files.Image(name) {
			t.Errorf("%s has %q, %v", foreign.Name, file, err)
		}
	}
	_, err = r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target(name)})
	wantError(t, err, ErrBusy, foreign.Path())
	wantError(t, r.pool.Delete(t.Context(), name, DeleteOptions{}), ErrBusy, foreign.Path())
	r.repair()
	wantThere()
	if err := foreign.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}

	// One that starts later, and exists while a death is cleared up.
	for _, kill := range []int{1, 3} {
		if !r.killed(order{Operation: "attach", Name: name, Attach: AttachOptions{Target: r.target(name)}, KillAt: kill}) {
			t.Fatal("it was not killed")
		}
		if foreign, err = blockdev.Attach(r.pool.files.Image(name), blockdev.AttachOptions{ReadOnly: true}); err != nil {
			t.Fatal(err)
		}
		r.repair()
		wantThere()
		if own, err := r.loopsOf(name); err != nil || len(own) != 1 {
			t.Errorf("%v, %v", own, err)
		}
		if err := foreign.Detach(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.attach(name, AttachOptions{})
	if foreign, err = blockdev.Attach(r.pool.files.Image(name), blockdev.AttachOptions{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	r.wantWhole(name)
	r.repair()
	r.detach(name)
	wantThere()
	if err := foreign.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wantDetached(name)
	r.wantKept(name)
}

// As a crash leaves it: synced data are still in the journal, and the record says
// detached, or what was in progress.
func TestARepairReplaysTheJournal(t *testing.T) {
	for _, state := range []AttachState{"", Attaching, Attached, Detaching} {
		t.Run(cmp.Or(string(state), "detached"), func(t *testing.T) { repairReplays(t, state) })
	}
}

func repairReplays(t *testing.T, state AttachState) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	loop := r.attach(name, AttachOptions{}).LoopDevice
	if err := writeSynced(filepath.Join(r.target(name), keptFile)); err != nil {
		t.Fatal(err)
	}
	record, err := r.pool.files.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	crashed := filepath.Join(r.home, "crashed")
	if output, err := exec.Command("dd", "if="+loop, "of="+crashed, "bs=1M", "iflag=direct").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	r.detach(name)
	if err := os.Rename(crashed, r.pool.files.Image(name)); err != nil {
		t.Fatal(err)
	}
	if s, err := ext4.ReadSuperblock(r.pool.files.Image(name)); err != nil || !s.NeedsRecovery {
		t.Fatalf("%+v, %v", s, err)
	}
	if state != "" {
		record.Attachment.State = state
		if err := r.pool.files.Write(record); err != nil {
			t.Fatal(err)
		}
	}
	if done := r.repair(); !strings.Contains(done.Volumes[name], "journal replayed") {
		t.Errorf("%+v", done)
	}
	if done := r.repair(); len(done.Volumes) > 0 {
		t.Errorf("%+v", done)
	}
	r.wantClean(r.pool.files.Image(name))
	r.wantKept(name)
}

func TestWhatTheUserRemovedIsReported(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	status := r.attach(name, AttachOptions{})
	if err := ext4.Unmount(t.Context(), r.target(name)); err != nil {
		t.Fatal(err)
	}
	if status := r.inspect(name); !strings.Contains(status.Problem, "repair") || status.Mountpoint != "" {
		t.Errorf("%+v", status)
	}
	if done := r.repair(); done.Volumes[name] == "" {
		t.Errorf("%+v", done)
	}
	r.wantDetached(name)
	// This includes the loop device.
	status = r.attach(name, AttachOptions{})
	if err := ext4.Unmount(t.Context(), r.target(name)); err != nil {
		t.Fatal(err)
	}
	loops, err := r.loopsOf(name)
	if err != nil || len(loops) != 1 || loops[0].Path() != status.LoopDevice {
		t.Fatalf("%v, %v", loops, err)
	}
	if err := loops[0].Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.attach(name, AttachOptions{})
	r.wantWhole(name)
	r.wantKept(name)
	r.wantDetached(name)
}
