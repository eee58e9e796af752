package volume

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/daybook-project/daybook/volume/internal/backing"
)

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
	// onJournal means that its journal is on a device, which the next volume must find empty if
	// this one was not made, and which it leaves if it was deleted.
	onJournal bool
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
		name: "create with its journal on a device", order: order{Operation: "create", Size: 2 * testBytes}, optional: true, onJournal: true,
		steps: []string{"work", "made", "complete", "synced", "published", "durable"},
	},
	{
		name: "delete with its journal on a device", prepare: func(r *rig, name string) {
			r.keep(name, CreateOptions{SizeBytes: 2 * testBytes, JournalDevice: r.device})
		},
		order: order{Operation: "delete"}, existed: true, optional: true, onJournal: true,
		steps: []string{"dropped", "cleared"},
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
	{
		name: "receive a longer volume", prepare: receiveChange(3 * testBytes), order: order{Operation: "receive"}, existed: true,
		steps: []string{"work", "received", "renamed", "exchanged"}, after: changeIsWhole,
	},
	{
		name: "receive a shorter volume", prepare: receiveChange(testBytes * 3 / 2), order: order{Operation: "receive"}, existed: true,
		steps: []string{"work", "received", "shorter recorded", "renamed", "exchanged"}, after: changeIsWhole,
	},
}

// receiveChange prepares a volume that was received, and the stream with a change of its size.
func receiveChange(size uint64) func(r *rig, name string) {
	return func(r *rig, name string) {
		from := name + "-from"
		r.keep(from, CreateOptions{SizeBytes: 2 * testBytes})
		r.snapshot(from, "s0")
		if _, err := r.pool.Receive(r.t.Context(), name, bytes.NewReader(r.send(from, "s0", "")), ReceiveOptions{}); err != nil {
			r.t.Fatal(err)
		}
		if _, err := r.pool.Resize(r.t.Context(), from, size, ResizeOptions{}); err != nil {
			r.t.Fatal(err)
		}
		r.snapshot(from, "s1")
		if err := os.WriteFile(r.stream(), r.send(from, "s1", "s0"), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
}

// stream is the file with the stream of receiveChange.
func (r *rig) stream() string { return filepath.Join(filepath.Dir(r.pool.dir), "stream") }

// changeIsWhole: the change was received completely, or can be received again.
func changeIsWhole(r *rig, name string) {
	sizeIsWhole(r, name)
	in, err := os.Open(r.stream())
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	before := r.inspect(name)
	if _, err := r.pool.Receive(r.t.Context(), name, in, ReceiveOptions{}); (err == nil) != (before.SizeBytes == 2*testBytes) {
		r.t.Errorf("a volume of %d bytes receives the change: %v", before.SizeBytes, err)
	}
	sizeIsWhole(r, name)
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
	if (c.onDevice || c.onJournal) && r.device == "" {
		r.device = r.newDevice(2 * testBytes)
	}
	if c.onJournal { // that of the volume before, which was deleted
		if err := backing.Wipe(r.t.Context(), r.device); err != nil {
			r.t.Fatal(err)
		}
	}
	if c.prepare != nil {
		c.prepare(r, name)
	}
	o = c.order
	o.Name, o.KillAt = name, -1
	if c.onDevice {
		o.Device = r.device
	}
	if c.onJournal {
		o.JournalDevice = r.device
	}
	if o.Operation == "receive" {
		o.Stream = r.stream()
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
	if c.onJournal && !there && !c.existed {
		r.wantEmpty(r.device)
	}
	if c.onJournal && (there || c.existed) {
		wantError(r.t, backing.CheckEmpty(r.t.Context(), r.device), ErrBusy, "jbd")
	}
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
