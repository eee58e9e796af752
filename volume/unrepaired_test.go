package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A program that is missing, or a full disk, is a fault of the host and not of the volume.
func TestARepairThatFailsDoesNotCallTheVolumeDamaged(t *testing.T) {
	r := newRig(t)
	name, damaged := r.name("v"), r.name("damaged")
	r.create(name, CreateOptions{})
	r.create(damaged, CreateOptions{})
	r.lie(name, func(record *Record) { record.Resize = 2 * testBytes })
	if err := os.Remove(r.pool.files.Image(damaged)); err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	done, err := r.pool.Repair(t.Context())
	if !errors.Is(err, ErrCorrupt) || !errors.Is(err, ErrSystem) || !strings.Contains(err.Error(), "1 volumes of pool "+r.pool.Dir()+" could not be repaired") {
		t.Errorf("%v", err)
	}
	if len(done.Damaged) != 1 || done.Damaged[damaged] == "" || !strings.Contains(done.Failed[name], "not found") {
		t.Errorf("%+v", done)
	}
	if all := done.Unrepaired(); len(all) != 2 || all[name] != done.Failed[name] || all[damaged] != done.Damaged[damaged] {
		t.Errorf("unrepaired: %q", all)
	}
	t.Setenv("PATH", path)
	if done, _ := r.pool.Repair(t.Context()); !strings.Contains(done.Volumes[name], "resize finished") || len(done.Failed) > 0 {
		t.Errorf("with its programs: %+v", done)
	}
	r.wantSize(name, 2*testBytes)
	if err := r.pool.Delete(t.Context(), damaged, DeleteOptions{}); err != nil {
		t.Error(err)
	}
	r.clear()
}

// Ctrl-C in the middle of a volume's repair does not make it a damaged one.
func TestAnInterruptedRepairReportsItself(t *testing.T) {
	r := newRig(t)
	answers := fakeLVM(t)
	name := r.name("v")
	r.volumeOnLVM(name, func(record *Record) { record.Resize = 2 * testBytes })
	answer(t, answers, "hang", "")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !exists(filepath.Join(answers, "hangs")) && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	done, err := r.pool.Repair(ctx)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the repair of volume "+name+" was interrupted") || len(done.Unrepaired()) > 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if err := os.RemoveAll(r.pool.files.VolumeDir(name)); err != nil {
		t.Fatal(err)
	}
}

// The cause of a step's error is found in what it wraps.
func TestAVolumeWithoutItsFileSystemIsDamaged(t *testing.T) {
	r := newRig(t)
	node := r.newDevice(2 * testBytes)
	name := r.name("v")
	r.create(name, CreateOptions{Device: node})
	r.lie(name, func(record *Record) { record.Resize = testBytes })
	device, err := os.OpenFile(node, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = device.Write(make([]byte, 4096))
	if err := errors.Join(err, device.Sync(), device.Close()); err != nil {
		t.Fatal(err)
	}
	done, err := r.pool.Repair(t.Context())
	if !errors.Is(err, ErrCorrupt) || done.Damaged[name] == "" || len(done.Failed) > 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
		t.Error(err)
	}
	r.clear()
}
