package volume

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/store"
)

func TestOnlyOneKeeperOfAPool(t *testing.T) {
	r := newRig(t)
	first, err := r.pool.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.pool.Keeper()
	wantError(t, err, ErrBusy, "another daemon")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	second, err := r.pool.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// The keeper notices a change of the record at once, also within the kernel's clock
// tick, and the thread of a new mount.
func TestTheKeeperPutsTheThreadBack(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	keeper, err := r.pool.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = keeper.Close() }()
	for range 3 {
		keeper.Once()
		status := r.attach(name, AttachOptions{})
		keeper.Once()
		if err := r.tree.Move(status.JBD2PID, "/"); err != nil {
			t.Fatal(err)
		}
		if r.inspect(name).Placed {
			t.Error("a thread in the root cgroup is called placed")
		}
		keeper.Once()
		r.wantWhole(name)
		// A new mount, and a cgroup that was removed.
		if err := ext4.Unmount(t.Context(), r.target(name)); err != nil {
			t.Fatal(err)
		}
		keeper.Once()
		if err := r.tree.Remove(status.JournalCgroup); err != nil {
			t.Fatal(err)
		}
		if err := ext4.Mount(status.LoopDevice, r.target(name), ext4.MountOptions{}); err != nil {
			t.Fatal(err)
		}
		keeper.Once()
		r.wantWhole(name)
		r.detach(name)
		keeper.Once()
		r.wantDetached(name)
	}
}

// In the rounds that skip volumes in parents' cgroups, their reported problems are not
// forgotten.
func TestTheKeeperReportsAProblemOnce(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	target := r.attach(name, AttachOptions{}).Mountpoint
	keeper, err := r.pool.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	r.pool.log = slog.New(slog.NewTextHandler(&said, nil))
	if err := unix.Unmount(target, 0); err != nil { // and the thread with it
		t.Fatal(err)
	}
	for turn := range 2*parentTurns + 1 {
		keeper.look(turn%parentTurns == 0)
	}
	if n := strings.Count(said.String(), "cannot keep the volume"); n != 1 {
		t.Errorf("told %d times, want once:\n%s", n, said.String())
	}
	if err := keeper.Close(); err != nil {
		t.Error(err)
	}
	r.detach(name)
}

// The keeper does not trust the time of a file that it read right after it was
// written: the next write may have the same time.
func TestTheKeeperReadsAYoungRecordAgain(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	record := r.create(name, CreateOptions{})
	keeper, err := r.pool.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = keeper.Close() }()
	tick := time.Now()
	for weight := uint64(1); weight <= 3; weight++ {
		record.Weight = weight
		file := filepath.Join(r.pool.files.VolumeDir(name), store.RecordFile)
		if err := errors.Join(r.pool.files.Write(record), os.Chtimes(file, tick, tick)); err != nil {
			t.Fatal(err)
		}
		kept, err := keeper.read(name)
		if err != nil || kept.record.Weight != weight {
			t.Errorf("%+v, %v; want weight %d", kept, err, weight)
		}
	}
}
