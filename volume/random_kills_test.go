package volume

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
)

// randomKills is the number of random moments at which the process is killed during
// a sequence of operations.
const randomKills = 200

// firstLife is the maximum life of a victim, until that proves too short for an
// operation.
const firstLife = 120 * time.Millisecond

// believed is what the victims' messages say about a volume.
type believed struct {
	there, attached bool
	size            uint64
	// files were synced; snapshots have their files by name.
	files     map[string]bool
	snapshots map[string]map[string]bool
	// pending is what was started and is not done; touched: anything was started.
	pending event
	touched bool
}

// tell enters a victim's message about the volume.
func (b *believed) tell(e event) {
	b.touched = true
	switch {
	case e.when == "begin":
		b.pending = e
		if e.operation == "remove" {
			delete(b.files, e.argument) // from now on it may be gone
		}
		return
	case e.when == "undone":
		b.pending.argument = e.argument
		return
	case e.operation == "resize":
		e.argument = b.pending.argument
	}
	b.pending = event{}
	b.apply(e)
}

// apply enters the effect of an operation.
func (b *believed) apply(e event) {
	switch e.operation {
	case "create":
		size, _ := strconv.ParseUint(e.argument, 10, 64)
		*b = believed{there: true, size: size, files: map[string]bool{}, snapshots: map[string]map[string]bool{}, touched: true}
	case "delete":
		*b = believed{touched: true}
	case "attach":
		b.attached = true
	case "detach":
		b.attached = false
	case "write":
		b.files[e.argument] = true
	case "resize":
		b.size, _ = strconv.ParseUint(e.argument, 10, 64)
	case "snapshot":
		b.snapshots[e.argument] = maps.Clone(b.files)
	case "unsnapshot":
		delete(b.snapshots, e.argument)
	}
}

// A process is killed at any moment of any operation on volumes. A repair then
// makes everything whole: what existed exists, with all that was synced to it, and
// nothing else.
func TestKilledAtRandomMomentsARepairMakesWhole(t *testing.T) {
	r := newRig(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var names []string
	volumes := make(map[string]*believed)
	for n := range 4 {
		names = append(names, r.name(fmt.Sprint("v", n)))
		volumes[names[n]] = &believed{}
	}
	// The last one is always on a device.
	r.device = r.newDevice(slices.Max(randomSizes))
	interrupted, done := make(map[string]int), make(map[string]int)
	life := firstLife
	kills := randomKills
	for kill := 0; kill < kills; kill++ {
		command := r.victim(order{Operation: "random", Seed: random.Uint64(), Names: names, Device: r.device, Targets: filepath.Join(r.home, "mnt"), KillAt: -1})
		events := tale(t, command)
		if first := <-events; first.when != "ready" {
			t.Fatalf("the victim said %+v", first)
		}
		time.Sleep(time.Duration(random.Int64N(int64(life))))
		if err := unix.Kill(command.Process.Pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
		for e := range events {
			if e.when == "error" {
				t.Fatalf("kill %d: the victim failed: %s", kill, e.argument)
			}
			volumes[e.name].tell(e)
			if e.when == "done" {
				done[e.operation]++
			}
		}
		if err := command.Wait(); err == nil {
			t.Fatalf("kill %d: the victim ended by itself", kill)
		}
		r.repair()
		for name, b := range volumes {
			if operation := b.pending.operation; operation != "" {
				interrupted[operation]++
				// On a slow machine it may never end.
				if done[operation] == 0 && interrupted[operation]%5 == 0 {
					life += life / 2
				}
			}
			r.updateBelief(name, b)
		}
		r.wantTidy()
		if t.Failed() {
			t.Fatalf("after kill %d", kill)
		}
		// On a busy host a rare operation may need more.
		if kill == kills-1 && kills < 2*randomKills && len(undone(done)) > 0 {
			kills += randomKills / 10
			life += life / 2
		}
	}
	for name, b := range volumes {
		for snapshot, files := range b.snapshots {
			r.wantInSnapshot(name, snapshot, files)
		}
	}
	t.Logf("%d kills within %v; done %v, interrupted %v", kills, life, done, interrupted)
	if never := undone(done); len(never) > 0 {
		t.Errorf("never done: %q", never)
	}
	r.clear()
}

// undone lists the operations that were never done.
func undone(done map[string]int) (never []string) {
	for _, operation := range []string{"create", "attach", "write", "snapshot", "resize", "detach", "delete"} {
		if done[operation] == 0 {
			never = append(never, operation)
		}
	}
	return never
}

// wantInSnapshot fails the test if a snapshot is not clean, or lacks a file that
// was synced before.
func (r *rig) wantInSnapshot(name, snapshot string, files map[string]bool) {
	r.t.Helper()
	image := r.pool.files.SnapshotImage(name, snapshot)
	r.wantClean(image)
	loop, err := blockdev.Attach(image, blockdev.AttachOptions{ReadOnly: true})
	if err != nil {
		r.t.Fatal(err)
	}
	point := filepath.Join(r.home, "snapshot")
	err = os.Mkdir(point, 0o700)
	if err == nil {
		err = ext4.Mount(loop.Node(), point, ext4.MountOptions{ReadOnly: true})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	for file := range files {
		if err := checkContent(filepath.Join(point, file)); err != nil {
			r.t.Errorf("snapshot %s of %s: %v", snapshot, name, err)
		}
	}
	if err := errors.Join(ext4.Unmount(r.t.Context(), point), loop.Detach(r.t.Context()), os.Remove(point)); err != nil {
		r.t.Fatal(err)
	}
}

// updateBelief compares the believed state of a volume with the real one, and
// enters whether an interrupted operation was done.
func (r *rig) updateBelief(name string, b *believed) {
	r.t.Helper()
	if !b.touched {
		return
	}
	b.touched = false
	pending := b.pending
	b.pending = event{}
	there := exists(r.pool.files.VolumeDir(name))
	if there != b.there && (pending.operation == "create" || pending.operation == "delete") {
		b.apply(pending)
		b.touched = false
	}
	if there != b.there {
		r.t.Errorf("%s: there %v, want %v; interrupted was %q", name, there, b.there, pending.operation)
		return
	}
	if !there {
		return
	}
	status := r.wantWhole(name)
	attached := status.Attachment != nil
	if attached != b.attached && pending.operation != "attach" && pending.operation != "detach" {
		r.t.Errorf("%s: attached %v, want %v; interrupted was %q", name, attached, b.attached, pending.operation)
	}
	b.attached = attached
	if fmt.Sprint(status.SizeBytes) == pending.argument && pending.operation == "resize" {
		b.size = status.SizeBytes
	}
	if status.SizeBytes != b.size {
		r.t.Errorf("%s: %d bytes, want %d; interrupted was %q", name, status.SizeBytes, b.size, pending.operation)
	}
	sizeIsWhole(r, name)
	if pending.operation == "snapshot" && slices.Contains(status.Snapshots, pending.argument) ||
		pending.operation == "unsnapshot" && !slices.Contains(status.Snapshots, pending.argument) {
		b.apply(pending)
		if pending.operation == "snapshot" {
			r.wantInSnapshot(name, pending.argument, b.snapshots[pending.argument])
		}
	}
	if want := slices.Sorted(maps.Keys(b.snapshots)); !slices.Equal(status.Snapshots, want) {
		r.t.Errorf("%s: snapshots %q, want %q; interrupted was %q", name, status.Snapshots, want, pending.operation)
	}
	if pending.operation == "snapshot" || pending.operation == "unsnapshot" {
		snapshotIsWhole(r, name)
	}
	if !attached {
		r.attach(name, AttachOptions{})
	}
	for file := range b.files {
		if err := checkContent(filepath.Join(r.target(name), file)); err != nil {
			r.t.Errorf("%s: what was synced is not there: %v; interrupted was %q", name, err, pending.operation)
		}
	}
	if !attached {
		r.detach(name)
	}
	b.touched = false
}
