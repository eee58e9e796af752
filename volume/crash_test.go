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
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/placement"
)

// expected is what the host should have for the pool's volumes, given their
// records: nothing for a detached volume.
func (r *rig) expected() []string {
	r.t.Helper()
	all, err := r.pool.List(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	want := slices.Clone(r.before)
	cgroups := make(map[string]bool)
	for _, status := range all {
		a := status.Attachment
		if a == nil {
			continue
		}
		if status.Record.InPool() {
			image, err := filepath.Rel(r.home, r.pool.files.Image(status.Name))
			if err != nil {
				r.t.Fatal(err)
			}
			want = append(want, "loop of /"+image)
		}
		target, err := filepath.Rel(r.home, a.Target)
		if err != nil {
			r.t.Fatal(err)
		}
		want = append(want, "mount on /"+target)
		for _, at := range placement.Ancestry(a.Journal) {
			if at != placement.Root {
				cgroups["cgroup "+at] = true
			}
		}
	}
	for at := range cgroups {
		if !slices.Contains(want, at) {
			want = append(want, at)
		}
	}
	return want
}

// wantTidy fails the test unless host and pool have exactly what the volumes need.
func (r *rig) wantTidy() {
	r.t.Helper()
	r.wantSame("host", r.host(), r.expected())
	want := []string{store.PoolFile, store.VolumesDir, store.WorkDir}
	names, err := r.pool.files.Names()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range names {
		dir := filepath.Join(store.VolumesDir, name)
		want = append(want, dir)
		want = append(want, r.filesOf(name)...)
		for _, snapshot := range r.pool.files.SnapshotNames(name) {
			dir := filepath.Join(dir, store.SnapshotsDir, snapshot)
			want = append(want, dir, filepath.Join(dir, store.SnapshotFile))
			if record, err := r.pool.files.Read(name); err != nil || record.InPool() {
				want = append(want, filepath.Join(dir, store.ImageFile))
			}
		}
	}
	r.wantSame("pool", r.files(), want)
	entries, err := os.ReadDir(filepath.Join(r.home, "mnt"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, entry := range entries {
		if status, err := r.pool.Inspect(r.t.Context(), entry.Name()); err != nil || status.Attachment == nil && status.Persist == nil {
			r.t.Errorf("the mount point %s is left", entry.Name())
		}
	}
}

const keptFile = "kept"

// keep makes a volume with a synced file.
func (r *rig) keep(name string, o CreateOptions) {
	r.t.Helper()
	r.create(name, o)
	r.attach(name, AttachOptions{Target: r.target(name), Placement: PlaceNone})
	if err := writeSynced(filepath.Join(r.target(name), keptFile)); err != nil {
		r.t.Fatal(err)
	}
	r.detach(name)
}

// wantKept fails the test if the file of keep is not complete. Afterwards the
// volume is detached.
func (r *rig) wantKept(name string) {
	r.t.Helper()
	if r.inspect(name).Attachment == nil {
		r.attach(name, AttachOptions{})
	}
	if err := checkContent(filepath.Join(r.target(name), keptFile)); err != nil {
		r.t.Error(err)
	}
	r.detach(name)
	r.wantClean(r.pool.blocks(r.inspect(name).Record).Node())
}

// crash is an operation that is killed at each of its steps.
type crash struct {
	name string
	// prepare makes the initial state; the rig is new.
	prepare func(r *rig, name string)
	order   order
	// steps are those that it must have at least.
	steps []string
	// onlySteps are the only steps at which it, and its repairs, are killed.
	onlySteps bool
	// existed means that the volume existed before, with the kept file. optional
	// means that it may be gone afterwards.
	existed, optional bool
	// fails means that the host prevents it, so that it must be rolled back.
	fails bool
	// onDevice means that the volume is on a device, which the next volume must
	// find empty.
	onDevice bool
	// after checks the special properties after the repair.
	after func(r *rig, name string)
}

var crashes = []crash{
	{
		name: "create thin", order: order{Operation: "create", Size: testBytes}, optional: true,
		steps: []string{"work", "made", "complete", "synced", "published"},
	},
	{
		name: "create full", order: order{Operation: "create", Size: testBytes, Provision: Full, Mode: 0o700}, optional: true,
		steps: []string{"work", "made", "complete", "synced", "published"},
	},
	{
		name: "create on a device", order: order{Operation: "create", Mode: 0o700}, optional: true, onDevice: true,
		steps: []string{"work", "blocks", "made", "complete", "synced", "published"},
	},
	{
		name: "attach a device", prepare: keepOnDevice, order: order{Operation: "attach"}, existed: true, onDevice: true,
		steps: []string{"attaching", "target", "opened", "mounted", "cgroup", "cgroups", "weights", "thread", "placed", "attached"},
	},
	{
		name: "detach a device", prepare: func(r *rig, name string) {
			keepOnDevice(r, name)
			r.attach(name, AttachOptions{})
		},
		order: order{Operation: "detach"}, existed: true, onDevice: true,
		steps: []string{"detaching", "mounted undone", "opened undone", "weights undone", "cgroup undone", "placement undone", "target undone", "detached"},
	},
	{
		name: "delete on a device", prepare: keepOnDevice, order: order{Operation: "delete"}, existed: true, optional: true, onDevice: true,
		steps: []string{"dropped", "cleared"},
	},
	{
		name: "shrink on a device", prepare: keepOnDevice, order: order{Operation: "resize", Size: testBytes * 3 / 2}, existed: true, onDevice: true,
		after: sizeIsWhole, steps: []string{"resizing", "resized"},
	},
	{
		name: "attach", prepare: func(r *rig, name string) { r.keep(name, CreateOptions{SizeBytes: testBytes}) },
		order: order{Operation: "attach"}, existed: true,
		steps: []string{"attaching", "target", "opened", "device known", "mounted", "cgroup", "cgroups", "weights", "thread", "placed", "attached"},
	},
	{
		name: "detach", prepare: func(r *rig, name string) {
			r.keep(name, CreateOptions{SizeBytes: testBytes})
			r.attach(name, AttachOptions{})
		},
		order: order{Operation: "detach"}, existed: true,
		steps: []string{"detaching", "mounted undone", "opened undone", "weights undone", "cgroup undone", "placement undone", "target undone", "detached"},
	},
	{
		name: "delete", prepare: func(r *rig, name string) { r.keep(name, CreateOptions{SizeBytes: testBytes}) },
		order: order{Operation: "delete"}, existed: true, optional: true,
		steps: []string{"dropped", "cleared"},
	},
	{
		name: "snapshot of a mounted volume", prepare: func(r *rig, name string) {
			r.keep(name, CreateOptions{SizeBytes: testBytes})
			r.attach(name, AttachOptions{})
		},
		order: order{Operation: "snapshot"}, existed: true, after: snapshotIsWhole,
		steps: []string{"work", "freezing", "frozen", "thawed", "copied", "synced", "published"},
	},
	{
		name: "snapshot", prepare: func(r *rig, name string) { r.keep(name, CreateOptions{SizeBytes: testBytes}) },
		order: order{Operation: "snapshot"}, existed: true, after: snapshotIsWhole,
		steps: []string{"work", "copied", "synced", "published"},
	},
	{
		name: "delete snapshot", prepare: func(r *rig, name string) {
			r.keep(name, CreateOptions{SizeBytes: testBytes})
			if _, err := r.pool.Snapshot(r.t.Context(), name, "snap", SnapshotOptions{}); err != nil {
				r.t.Fatal(err)
			}
		},
		order: order{Operation: "delete snapshot"}, existed: true, after: snapshotIsWhole,
		steps: []string{"dropped", "cleared"},
	},
	{
		name: "clone of a mounted volume", prepare: func(r *rig, name string) {
			r.keep(name, CreateOptions{SizeBytes: testBytes})
			r.attach(name, AttachOptions{})
		},
		order: order{Operation: "clone"}, existed: true,
		steps: []string{"work", "freezing", "frozen", "thawed", "copied", "cloned", "renewed", "complete", "published"},
		after: func(r *rig, name string) {
			if clone := name + "-clone"; exists(r.pool.files.VolumeDir(clone)) {
				r.wantWhole(clone)
				r.wantKept(clone)
				if err := r.pool.Delete(r.t.Context(), clone, DeleteOptions{}); err != nil {
					r.t.Error(err)
				}
			}
		},
	},
	{
		name: "grow a mounted volume", prepare: func(r *rig, name string) {
			r.keep(name, CreateOptions{SizeBytes: testBytes, Provision: Full})
			r.attach(name, AttachOptions{})
		},
		order: order{Operation: "resize", Size: 2 * testBytes}, existed: true, after: sizeIsWhole,
		steps: growSteps, fails: !canGrowMounted(),
	},
	{
		name: "grow", prepare: func(r *rig, name string) { r.keep(name, CreateOptions{SizeBytes: testBytes}) },
		order: order{Operation: "resize", Size: 2 * testBytes}, existed: true, after: sizeIsWhole,
		steps: []string{"resizing"},
	},
	{
		name: "shrink", prepare: func(r *rig, name string) { r.keep(name, CreateOptions{SizeBytes: 2 * testBytes}) },
		order: order{Operation: "resize", Size: testBytes * 3 / 2}, existed: true, after: sizeIsWhole,
		steps: []string{"resizing"},
	},
}

func keepOnDevice(r *rig, name string) { r.keep(name, CreateOptions{Device: r.device}) }

// growSteps: without the permission, it is refused before the first step.
var growSteps = func() []string {
	if canGrowMounted() {
		return []string{"resizing", "lengthened", "capacity"}
	}
	return nil
}()

func snapshotIsWhole(r *rig, name string) {
	for _, snapshot := range r.pool.files.SnapshotNames(name) {
		if _, err := r.pool.files.ReadSnapshot(name, snapshot); err != nil {
			r.t.Error(err)
		}
		record, err := r.pool.files.Read(name)
		if err != nil {
			r.t.Fatal(err)
		}
		of, err := r.pool.files.ReadSnapshot(name, snapshot)
		if err != nil {
			r.t.Fatal(err)
		}
		r.wantClean(r.pool.blocks(record).SnapshotNode(of))
	}
}

func sizeIsWhole(r *rig, name string) {
	status := r.inspect(name)
	if !status.Record.InPool() {
		if bytes, err := fileSystemBytes(r.pool.blocks(status.Record).Node()); err != nil || bytes != status.SizeBytes || status.Resize != 0 {
			r.t.Errorf("%s has a file system of %d bytes, %v: size %d, resize to %d", r.pool.blocks(status.Record).Node(), bytes, err, status.SizeBytes, status.Resize)
		}
		return
	}
	info, err := os.Stat(r.pool.files.Image(name))
	if err != nil || uint64(info.Size()) != status.SizeBytes || status.Resize != 0 {
		r.t.Errorf("%+v, %v: size %d, resize to %d", info, err, status.SizeBytes, status.Resize)
	}
}

// A process is killed at any step. A repair then makes everything whole, also after
// repairs that were themselves killed at their steps.
func TestKilledAtEachStepARepairMakesWhole(t *testing.T) {
	kills := 0
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) { kills += newRig(t).crashAtEachStep(c) })
	}
	t.Logf("%d kills", kills)
}

func (r *rig) crashAtEachStep(c crash) (kills int) {
	r.t.Helper()
	steps := r.stepsOf(c)
	for _, want := range c.steps {
		if !slices.Contains(steps, want) {
			r.t.Errorf("it never reached %q: %q", want, steps)
		}
	}
	for at := range steps {
		for _, chain := range []bool{false, true} {
			if c.onlySteps && (!chain || !slices.Contains(c.steps, steps[at])) {
				continue
			}
			kills += r.crash(c, at, steps[at], chain)
			if r.t.Failed() {
				r.t.Fatalf("killed at step %d, %q, of %q; repairs killed: %v", at, steps[at], steps, chain)
			}
		}
	}
	return kills
}

func (r *rig) begin(c crash) (name string, o order) {
	name = r.name("v")
	if c.onDevice && r.device == "" {
		r.device = r.newDevice(2 * testBytes)
	}
	if c.prepare != nil {
		c.prepare(r, name)
	}
	o = c.order
	o.Name, o.KillAt = name, -1
	if c.onDevice {
		o.Device = r.device
	}
	if o.Attach.Target == "" {
		o.Attach.Target = r.target(name)
	}
	return name, o
}

// stepsOf runs an operation to its end, and returns its steps.
func (r *rig) stepsOf(c crash) (steps []string) {
	r.t.Helper()
	_, o := r.begin(c)
	p := *r.pool
	p.engine.Stop = func(step string) { steps = append(steps, step) }
	if err := operations[o.Operation](r.t.Context(), &p, o); err == nil == c.fails {
		r.t.Fatal(err)
	}
	r.wantTidy()
	r.clear()
	return steps
}

// clear detaches and deletes all volumes.
func (r *rig) clear() {
	r.t.Helper()
	names, err := r.pool.files.Names()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range names {
		r.detach(name)
		if err := r.pool.Delete(r.t.Context(), name, DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
	}
	r.wantDetached()
}

// stepPatience is how long the tests of other packages may use the common parent
// cgroup of all volumes.
const stepPatience = 5 * time.Minute

// crash kills an operation at a step, and returns the number of kills.
func (r *rig) crash(c crash, at int, step string, chain bool) (kills int) {
	r.t.Helper()
	name, o := r.begin(c)
	o.KillAt = at
	// If the test of another package makes or removes the common parent cgroup,
	// there is one step less.
	for deadline := time.Now().Add(stepPatience); !r.killed(o); name, o = r.begin(c) {
		if time.Now().After(deadline) {
			r.t.Fatalf("it always ends before step %d, %q", at, step)
		}
		r.clear()
		o.KillAt = at
	}
	kills++
	if chain {
		for n := 0; r.killed(order{Operation: "repair", KillAt: n}); n++ {
			kills++
		}
	}
	r.repair()
	if again := r.repair(); again.Work != 0 || len(again.Volumes) > 0 {
		r.t.Errorf("a second repair found %+v", again)
	}
	r.wantTidy()
	there := exists(r.pool.files.VolumeDir(name))
	switch {
	case !there && !c.optional:
		r.t.Error("the volume is gone")
	case there:
		r.wantWhole(name)
		if c.after != nil {
			c.after(r, name)
		}
		if c.existed {
			r.wantKept(name)
		}
	}
	r.clear()
	return kills
}

// A parent cgroup that the user made gets its weight back after any kill.
func TestKilledAtEachStepTheUsersCgroupHasItsWeightBack(t *testing.T) {
	r := newHome(t)
	disk := r.newDisk(128<<20, 512, blockdev.BFQ)
	r.open(filepath.Join(disk.dir, "pool"))
	cgroupPath, weights := r.weightedCgroup(disk.Disk, "user", 250)
	before, err := weights.Get(cgroupPath)
	if err != nil {
		t.Fatal(err)
	}
	attach := AttachOptions{Target: r.target(r.name("v")), Cgroup: cgroupPath, Weight: 700}
	for _, c := range []crash{
		{
			name: "attach", prepare: func(r *rig, name string) { r.keep(name, CreateOptions{SizeBytes: testBytes}) },
			order: order{Operation: "attach", Attach: attach}, steps: []string{"weight intended", "weights", "attached"},
		},
		{
			name: "detach", prepare: func(r *rig, name string) {
				r.keep(name, CreateOptions{SizeBytes: testBytes})
				r.attach(name, attach)
			},
			order: order{Operation: "detach"}, steps: []string{"detaching", "weights undone", "placement undone"},
		},
	} {
		steps := r.stepsOf(c)
		for _, want := range c.steps {
			if !slices.Contains(steps, want) {
				t.Errorf("%s never reached %q: %q", c.name, want, steps)
			}
		}
		for at, step := range steps {
			name, o := r.begin(c)
			o.KillAt = at
			if !r.killed(o) {
				t.Fatalf("%s ended before step %q", c.name, step)
			}
			for n := 0; r.killed(order{Operation: "repair", KillAt: n}); n++ {
			}
			r.repair()
			r.wantTidy()
			now, err := weights.Get(cgroupPath)
			if err != nil {
				t.Fatal(err)
			}
			if r.inspect(name).Attachment != nil {
				if now.Effective() != 700 {
					t.Errorf("%s killed at %q: attached, and the weight is %+v", c.name, step, now)
				}
				r.detach(name)
				now, err = weights.Get(cgroupPath)
			}
			if err != nil || now != before {
				t.Errorf("%s killed at %q: weight %+v, %v; before %+v", c.name, step, now, err, before)
			}
			r.clear()
		}
	}
}

// weightedCgroup makes a cgroup with a weight on a disk; the rig removes it.
func (r *rig) weightedCgroup(disk blockdev.Disk, name string, weight uint64) (cgroupPath string, weights *cgroup.Weights) {
	r.t.Helper()
	scheduler, err := disk.Scheduler()
	if err != nil {
		r.t.Fatal(err)
	}
	if weights, err = r.tree.Weights(disk.Dev, scheduler.Current); err != nil {
		r.t.Fatal(err)
	}
	cgroupPath = "/" + r.name(name)
	if err := r.tree.Make(cgroupPath); err != nil {
		r.t.Fatal(err)
	}
	r.before = append(r.before, "cgroup "+cgroupPath)
	r.t.Cleanup(func() {
		if err := r.tree.Remove(cgroupPath); err != nil {
			r.t.Error(err)
		}
	})
	if err := weights.Set(cgroupPath, weight); err != nil {
		r.t.Fatal(err)
	}
	return cgroupPath, weights
}

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
