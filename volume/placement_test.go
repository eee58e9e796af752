package volume

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/blockdev/blockdevtest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/operation"
	"github.com/daybook-project/daybook/volume/placement"
)

// newWeightedRig makes a rig whose pool is on a disk under BFQ.
func newWeightedRig(t testing.TB) (r *rig, disk poolDisk) {
	t.Helper()
	r = newHome(t)
	disk = r.newDisk(128<<20, 512, blockdev.BFQ)
	r.open(filepath.Join(disk.dir, "pool"))
	return r, disk
}

func TestTheParentCgroupHasTheWeightWhereTheDiskKnowsWeights(t *testing.T) {
	r, disk := newWeightedRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{Weight: 300})
	if status := r.attach(name, AttachOptions{}); status.WeightInForce != 300 || status.ParentCgroup != "/daybook/"+name {
		t.Errorf("%+v", status)
	}
	wantJournalFirst(t, r, disk, name)
	r.detach(name)
	// From now on it is another one.
	if status := r.attach(name, AttachOptions{Weight: 800}); status.WeightInForce != 800 {
		t.Errorf("%+v", status)
	}
	r.detach(name)
	if status := r.attach(name, AttachOptions{}); status.WeightInForce != 800 {
		t.Errorf("%+v", status)
	}
	r.detach(name)
	if err := disk.SetScheduler("none"); err != nil {
		t.Fatal(err)
	}
	if status := r.attach(name, AttachOptions{}); status.WeightInForce != 0 || status.JournalWeight != 0 || !status.Placed {
		t.Errorf("without BFQ: %+v", status)
	}
	r.clear()
}

// wantJournalFirst fails the test unless the journal has the greatest weight inside
// the parent cgroup, and gets it again after another program removed it.
func wantJournalFirst(t *testing.T, r *rig, disk poolDisk, name string) {
	t.Helper()
	weights, err := r.tree.Weights(disk.Dev, blockdev.BFQ)
	if err != nil {
		t.Fatal(err)
	}
	status := r.inspect(name)
	now, err := weights.Get(status.Attachment.Journal)
	if err != nil || now.Effective() != weights.Max() || status.JournalWeight != weights.Max() {
		t.Errorf("the journal's weight is %+v, %v; %d is told; want %d", now, err, status.JournalWeight, weights.Max())
	}
	if err := weights.Set(status.Attachment.Journal, weights.Default()); err != nil {
		t.Fatal(err)
	}
	v, err := r.pool.hold(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer v.release()
	if err := v.place(t.Context()); err != nil || r.inspect(name).JournalWeight != weights.Max() {
		t.Errorf("after another placement the journal's weight is %d, %v", r.inspect(name).JournalWeight, err)
	}
}

func TestAFailedAttachLeavesTheWeightAsItWas(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{Weight: 300})
	if err := os.WriteFile(r.pool.files.Image(name), make([]byte, testBytes), 0o600); err != nil { // no ext4
		t.Fatal(err)
	}
	if _, err := r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target(name), Weight: 700}); err == nil {
		t.Error("zeros were mounted")
	}
	if weight := r.inspect(name).Weight; weight != 300 {
		t.Errorf("weight %d", weight)
	}
	r.wantDetached(name)
}

// Killed at any step: the volume's own weight is a new one only if it is attached with it.
func TestAKilledAttachLeavesTheWeightAsItWas(t *testing.T) {
	r := newRig(t)
	for _, before := range []uint64{0, 300} {
		c := crash{
			name: "attach", prepare: func(r *rig, name string) { r.create(name, CreateOptions{Weight: before}) },
			order: order{Operation: "attach", Attach: AttachOptions{Weight: 800}},
		}
		attached := false
		for at, step := range r.stepsOf(c) {
			name, o := r.begin(c)
			o.KillAt = at
			if !r.killed(o) {
				t.Fatalf("attach ended before step %q", step)
			}
			for n := 0; r.killed(order{Operation: "repair", KillAt: n}); n++ {
			}
			r.repair()
			want := before
			if r.inspect(name).Attachment != nil {
				want, attached = 800, true
			}
			if weight := r.inspect(name).Weight; weight != want {
				t.Errorf("killed at %q: weight %d, want %d", step, weight, want)
			}
			r.clear()
		}
		if !attached {
			t.Error("no kill left the volume attached")
		}
	}
}

// Also if the last step alone fails, with which the weight and the persistence are final.
func TestAnAttachThatCannotBeRecordedLeavesTheVolumeAsItWas(t *testing.T) {
	r := newPersistentRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{Weight: 300})
	inTheWay := filepath.Join(r.pool.files.VolumeDir(name), store.RecordFile+atomicfile.TemporarySuffix)
	p := *r.pool
	p.engine.Stop = func(step string) {
		var err error
		switch step {
		case "placed":
			err = os.MkdirAll(filepath.Join(inTheWay, "full"), 0o700)
		case "mounted" + operation.Undone:
			err = os.RemoveAll(inTheWay)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := p.Attach(t.Context(), name, AttachOptions{Target: r.target(name), Weight: 800, Persist: true}); err == nil || exists(inTheWay) {
		t.Errorf("%v; %s exists: %v", err, inTheWay, exists(inTheWay))
	}
	if status := r.inspect(name); status.Weight != 300 || status.Persist != nil || exists(r.target(name)) {
		t.Errorf("weight %d, persistent %+v, target exists: %v", status.Weight, status.Persist, exists(r.target(name)))
	}
	r.wantDetached(name)
}

// The weight of a cgroup that the user made is restored with the last volume, in
// whatever order they are detached, also if the scheduler was changed since.
func TestVolumesThatShareTheUsersCgroupGiveItsWeightBack(t *testing.T) {
	r, disk := newWeightedRig(t)
	parent, weights := r.weightedCgroup(disk.Disk, "user", 250)
	before, err := weights.Get(parent)
	if err != nil {
		t.Fatal(err)
	}
	a, b := r.name("a"), r.name("b")
	r.create(a, CreateOptions{Weight: 300})
	r.create(b, CreateOptions{Weight: 700})
	wantWeight := func(when string, want uint64) {
		t.Helper()
		if now, err := weights.Get(parent); err != nil || now.Effective() != want {
			t.Errorf("%s: weight %+v, %v; want %d", when, now, err, want)
		}
	}
	for _, order := range [][]string{{a, b}, {b, a}} {
		for _, same := range []uint64{0, 300} { // both want the same weight
			r.attach(a, AttachOptions{Cgroup: parent})
			wantWeight("one", 300)
			r.attach(b, AttachOptions{Cgroup: parent, Weight: same})
			r.wantTidy()
			rest := map[string]uint64{a: 300, b: r.inspect(b).Weight}
			wantWeight("two", rest[b])
			r.detach(order[0])
			wantWeight("detached "+order[0], rest[order[1]])
			r.wantWhole(order[1])
			r.detach(order[1])
			if now, err := weights.Get(parent); err != nil || now != before {
				t.Errorf("after %q: %+v, %v; before %+v", order, now, err, before)
			}
			r.wantDetached(a, b)
			if same != 0 {
				r.attach(b, AttachOptions{Cgroup: parent, Weight: 700})
				r.detach(b)
			}
		}
	}
	r.attach(a, AttachOptions{Cgroup: parent})
	if err := disk.SetScheduler("none"); err != nil {
		t.Fatal(err)
	}
	r.detach(a)
	if err := disk.SetScheduler(blockdev.BFQ); err != nil {
		t.Fatal(err)
	}
	if now, err := weights.Get(parent); err != nil || now.Default != before.Default {
		t.Errorf("after a change of the scheduler: %+v, %v; before %+v", now, err, before)
	}
	r.clear()
}

// The weights of a cgroup on two disks are independent.
func TestVolumesOnTwoDisksBelowACgroupShareNoWeight(t *testing.T) {
	r, disk := newWeightedRig(t)
	other, err := blockdev.Lookup(r.newDevice(testBytes))
	if err != nil {
		t.Fatal(err)
	}
	if err := blockdevtest.SetScheduler(t, other, blockdev.BFQ); err != nil {
		t.Fatal(err)
	}
	parent, one := r.weightedCgroup(disk.Disk, "user", 250)
	two, err := r.tree.Weights(other.Dev, blockdev.BFQ)
	if err == nil {
		err = two.Set(parent, 50)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := func(when string, first, second uint64) {
		t.Helper()
		for weights, want := range map[*cgroup.Weights]uint64{one: first, two: second} {
			if now, err := weights.Get(parent); err != nil || now.Effective() != want {
				t.Errorf("%s: weight %+v, %v; want %d", when, now, err, want)
			}
		}
	}
	a, b := r.name("a"), r.name("b")
	r.create(a, CreateOptions{Weight: 300})
	r.create(b, CreateOptions{Weight: 700, Device: other.Node()})
	for _, order := range [][]string{{a, b}, {b, a}} {
		want("before", 250, 50)
		for _, name := range order {
			r.attach(name, AttachOptions{Cgroup: parent})
		}
		want("attached", 300, 700)
		rest := map[string][2]uint64{a: {250, 700}, b: {300, 50}}[order[0]]
		r.detach(order[0])
		want("detached "+order[0], rest[0], rest[1])
		r.detach(order[1])
	}
	want("at the end", 250, 50)
	r.clear()
}

// The first volume makes a missing parent, and the last one removes it.
func TestVolumesThatShareAMissingCgroupRemoveItWithTheLast(t *testing.T) {
	r := newRig(t)
	a, b := r.name("a"), r.name("b")
	parent := "/" + r.name("x") + "/y"
	r.create(a, CreateOptions{})
	r.create(b, CreateOptions{})
	for _, order := range [][]string{{a, b}, {b, a}} {
		r.attach(a, AttachOptions{Cgroup: parent})
		r.attach(b, AttachOptions{Cgroup: parent})
		r.wantTidy()
		for _, name := range order {
			r.wantWhole(name)
			r.detach(name)
			r.wantSame("host", r.host(), r.expected())
		}
		r.wantDetached(a, b)
	}
	// Two processes at the same time.
	for range 10 {
		var victims []*exec.Cmd
		for _, name := range []string{a, b} {
			victims = append(victims, r.victim(order{Operation: "attach", Name: name, Attach: AttachOptions{Target: r.target(name), Cgroup: parent}, KillAt: -1}))
		}
		r.together(victims)
		r.wantTidy()
		// One is detached while another is attached.
		r.detach(a)
		r.together([]*exec.Cmd{
			r.victim(order{Operation: "attach", Name: a, Attach: AttachOptions{Target: r.target(a), Cgroup: parent}, KillAt: -1}),
			r.victim(order{Operation: "detach", Name: b, KillAt: -1}),
		})
		r.wantWhole(a)
		r.detach(a)
		r.wantDetached(a, b)
	}
}

func (r *rig) together(victims []*exec.Cmd) {
	r.t.Helper()
	var outputs []*strings.Builder
	for _, victim := range victims {
		var output strings.Builder
		victim.Stderr = &output
		outputs = append(outputs, &output)
		if err := victim.Start(); err != nil {
			r.t.Fatal(err)
		}
	}
	for i, victim := range victims {
		if err := victim.Wait(); err != nil {
			r.t.Errorf("%v: %s", err, outputs[i])
		}
	}
}

// A container's cgroup beside the journal's keeps the parent; the next detach
// removes it.
func TestAParentCgroupInUseStaysAndGoesLater(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{})
	container := "/daybook/" + name + "/container"
	if err := r.tree.Make(container); err != nil {
		t.Fatal(err)
	}
	r.detach(name)
	if _, err := r.tree.Lookup(container); err != nil {
		t.Error(err)
	}
	if _, err := r.tree.Lookup("/daybook/" + name + "/journal"); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("the journal's cgroup: %v", err)
	}
	r.attach(name, AttachOptions{})
	if err := r.tree.Remove(container); err != nil {
		t.Fatal(err)
	}
	r.detach(name)
	r.wantDetached(name)
}

func TestALeftDaybookCgroupGoes(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	if err := errors.Join(r.tree.Make(placement.Root), r.tree.Make(placement.Root+"/"+name), r.tree.Make(placement.Root+"/"+name+"/journal")); err != nil {
		t.Fatal(err)
	}
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{})
	r.wantWhole(name)
	r.detach(name)
	r.wantDetached(name)
}

// The thread must not stay in a container's own cgroup longer than the container.
func TestAContainersCgroupThatHasEndedIsNoDamage(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	container := "/" + r.name("container")
	r.create(name, CreateOptions{})
	_, err := r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target(name), Placement: PlaceContainer, Cgroup: container})
	wantError(t, err, cgroup.ErrVanished, "the container's cgroup")
	r.wantDetached(name)
	if err := r.tree.Make(container); err != nil {
		t.Fatal(err)
	}
	status := r.attach(name, AttachOptions{Placement: PlaceContainer, Cgroup: container})
	if status.JournalCgroup != container || !status.Placed {
		t.Errorf("%+v", status)
	}
	keeper, err := r.pool.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	keeper.Once()
	if status := r.inspect(name); status.JournalCgroup != "/" {
		t.Errorf("the thread is alone in %s", status.JournalCgroup)
	}
	process := exec.Command("sleep", "1000")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	if err := r.tree.Move(process.Process.Pid, container); err != nil {
		t.Error(err)
	}
	keeper.Once()
	if status := r.inspect(name); status.JournalCgroup != container {
		t.Errorf("the thread is in %s, the container runs in %s", status.JournalCgroup, container)
	}
	_ = process.Process.Kill()
	_ = process.Wait()
	awaittest.Until(t, awaittest.Patience, "the thread leaves", func() bool {
		keeper.Once()
		return r.inspect(name).JournalCgroup == "/"
	})
	if err := r.tree.Remove(container); err != nil {
		t.Error(err)
	}
	if done := r.repair(); len(done.Volumes) > 0 {
		t.Errorf("%+v", done)
	}
	r.attach(name, AttachOptions{Placement: PlaceContainer, Cgroup: container}) // unchanged
	if err := keeper.Close(); err != nil {
		t.Error(err)
	}
	r.clear()
}

func TestAReadOnlyVolumeIsNotWritten(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	before, err := os.ReadFile(r.pool.files.Image(name))
	if err != nil {
		t.Fatal(err)
	}
	r.attach(name, AttachOptions{ReadOnly: true})
	r.wantWhole(name)
	if err := checkContent(filepath.Join(r.target(name), keptFile)); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(r.target(name), "more"), nil, 0o600); err == nil {
		t.Error("it was written")
	}
	if done := r.repair(); len(done.Volumes) > 0 {
		t.Errorf("%+v", done)
	}
	r.detach(name)
	after, err := os.ReadFile(r.pool.files.Image(name))
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("the image has changed: %v", err)
	}
	r.clear()
}

// The thread of an external journal has the journal device's name.
func TestAVolumeWithItsJournalElsewhere(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	file := filepath.Join(r.home, "journal")
	if err := imagefile.MakeSparse(file, 16<<20); err != nil {
		t.Fatal(err)
	}
	journal, err := blockdev.Attach(file, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := journal.Detach(t.Context()); err != nil {
			_ = journal.DetachLazily()
		}
	})
	r.before = append(r.before, "loop of /journal")
	r.create(name, CreateOptions{JournalDevice: journal.Path()})
	status := r.attach(name, AttachOptions{})
	if pid, err := ext4.JournalThread(journal.Name); err != nil || status.JBD2PID != pid || !status.Placed {
		t.Errorf("%+v, %v", status, err)
	}
	if err := writeSynced(filepath.Join(r.target(name), keptFile)); err != nil {
		t.Error(err)
	}
	r.detach(name)
	r.attach(name, AttachOptions{})
	if err := checkContent(filepath.Join(r.target(name), keptFile)); err != nil {
		t.Error(err)
	}
	r.clear()
	if err := journal.Detach(t.Context()); err != nil {
		t.Error(err)
	}
}

// Otherwise the weights that daybook control has corrected would be taken for the original ones.
func TestPlacementsLookForCorrectionsOfWeights(t *testing.T) {
	r := newRig(t)
	looked := false
	uncorrected := func(_ blockdev.Disk, _ string, _ uint64, now cgroup.Setting, unit uint64) (cgroup.Setting, uint64, error) {
		looked = true
		return now, unit, nil
	}
	pool, err := Open(t.Context(), r.pool.dir, PoolOptions{Uncorrected: uncorrected})
	if err != nil {
		t.Fatal(err)
	}
	thread := pool.placed(Record{Attachment: &Attachment{}})
	if thread.Uncorrected == nil {
		t.Fatal("a placement does not know of corrections")
	}
	if _, _, err := thread.Uncorrected(blockdev.Disk{}, "", 0, cgroup.Setting{}, 0); err != nil || !looked {
		t.Errorf("looked %t, %v", looked, err)
	}
}
