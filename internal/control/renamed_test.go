package control

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgroup"
)

func (f *fakeHost) rename(from, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids[to], f.weights[to] = f.ids[from], f.weights[from]
	delete(f.ids, from)
	delete(f.weights, from)
}

// Another cgroup takes the path of one that was renamed; later it has its old path again.
func TestARenamedCgroupIsRestored(t *testing.T) {
	for _, back := range []bool{false, true} {
		f := newFakeHost("/ca", "/cb")
		var renamed, other Setting
		steps := []func() account.Sample{journalling, func() account.Sample {
			if f.weight("/cb").Device == 0 {
				t.Error("/cb has no weight of Daybook's: nothing is tested")
			}
			f.rename("/cb", "/moved")
			f.create("/cb")
			return journalling()
		}, func() account.Sample {
			renamed, other = f.weight("/moved"), f.weight("/cb")
			if back {
				f.remove("/cb")
				f.rename("/moved", "/cb")
			}
			return journalling()
		}, journalling}
		if err := Run(context.Background(), fakeOptions(t, f, twoEqual, steps...)); err != nil {
			t.Fatal(err)
		}
		if renamed != (Setting{Default: 100}) || other.Device == 0 {
			t.Errorf("after the rename: %+v, and the new cgroup %+v; want the original, and a weight of Daybook's", renamed, other)
		}
		for cgroup := range f.ids {
			if got := f.weight(cgroup); got != (Setting{Default: 100}) {
				t.Errorf("back %v: in the end %s has %+v", back, cgroup, got)
			}
		}
	}
}

// A renamed cgroup that a rule matches keeps its original settings in the state.
func TestARenamedCgroupStaysUnderControl(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	steps := []func() account.Sample{journalling, func() account.Sample { f.rename("/cb", "/cc"); return journalling() }, journalling, journalling}
	if err := Run(context.Background(), fakeOptions(t, f, threeEqual, steps...)); err != nil {
		t.Fatal(err)
	}
	if got := f.weight("/cc"); got != (Setting{Default: 100}) {
		t.Errorf("in the end /cc has %+v", got)
	}
}

// The state cannot have such a path. Other cgroups that appear are controlled all the same.
func TestACgroupThatIsRenamedToNoUTF8IsRestoredAtOnce(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	const moved = "/cb\xff"
	var renamed, other Setting
	steps := []func() account.Sample{journalling, func() account.Sample {
		f.rename("/cb", moved)
		f.create("/cc")
		return journalling()
	}, func() account.Sample {
		renamed, other = f.weight(moved), f.weight("/cc")
		return journalling()
	}}
	if err := Run(context.Background(), fakeOptions(t, f, "containers: [{match: /c*, weight: 500}]", steps...)); err != nil {
		t.Fatal(err)
	}
	if renamed != (Setting{Default: 100}) || other.Device != 500 {
		t.Errorf("after the rename: %+v, and a new cgroup %+v; want the original, and 500", renamed, other)
	}
	for cgroup := range f.ids {
		if got := f.weight(cgroup); got != (Setting{Default: 100}) {
			t.Errorf("in the end %q has %+v", cgroup, got)
		}
	}
}

func TestRestoreFindsACgroupThatWasRenamed(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	dir := t.TempDir()
	state := sampleState()
	state.Cgroups = []CgroupState{{Cgroup: "/ca", ID: f.ids["/ca"], Weight: Setting{Default: 7}}, {Cgroup: "/cb", ID: f.ids["/cb"], Weight: Setting{Default: 9}}}
	if err := state.Save(dir); err != nil {
		t.Fatal(err)
	}
	f.rename("/cb", "/moved")
	f.create("/cb")
	outcome, ok, err := Restore(dir, "", "loop0", "", func(*State) (Host, error) { return f.host(), nil }, discard)
	if err != nil || !ok || !slices.Equal(outcome.Restored, []string{"/ca", "/moved"}) {
		t.Errorf("%+v %v %v", outcome, ok, err)
	}
	if moved, other := f.weight("/moved").Default, f.weight("/cb").Default; moved != 9 || other != 100 {
		t.Errorf("the renamed cgroup has %d, want 9; the other one %d, want 100", moved, other)
	}
}

// Only cgroup v1 can rename.
func TestARealCgroupThatIsRenamedIsRestored(t *testing.T) {
	b := newTestbed(t)
	if b.tree.Version() != cgroup.V1 {
		t.Log("cgroup v2 renames no cgroup")
		return
	}
	before := b.settings(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	options := b.options(t.TempDir())
	options.OpenSource = b.restless()
	from, to := b.parent+"/from", b.parent+"/to"
	intervals := 0
	if err := os.Mkdir(b.dir(from), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(b.dir(from)) })
	original, err := options.Disks[0].Host.Weights.Get(from)
	if err != nil {
		t.Fatal(err)
	}
	options.OnInterval = func(Decision) {
		rename := [2]string{}
		switch intervals++; {
		case intervals == 20:
			cancel()
		case intervals%4 == 2:
			rename = [2]string{from, to}
		case intervals%4 == 0:
			rename = [2]string{to, from}
		}
		if rename[0] != "" {
			if err := os.Rename(b.dir(rename[0]), b.dir(rename[1])); err != nil {
				t.Error(err)
			}
		}
	}
	if err := Run(ctx, options); err != nil {
		t.Fatal(err)
	}
	_ = os.Rename(b.dir(to), b.dir(from))
	if got, err := options.Disks[0].Host.Weights.Get(from); err != nil || got != original {
		t.Errorf("in the end %+v, %v; want %+v", got, err, original)
	}
	if err := os.Remove(b.dir(from)); err != nil {
		t.Error(err)
	}
	if after := b.settings(t); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}
