package control

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

func TestCgroupsVanishReturnAndAppear(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	options := fakeOptions(t, f, twoEqual,
		journalling,
		func() account.Sample { f.remove("/cb"); return journalling() },
		func() account.Sample {
			f.create("/cb") // another one of that name, with settings of its own
			f.mu.Lock()
			f.weights["/cb"] = Setting{Default: 250}
			f.mu.Unlock()
			return sampleOf(did("/ca", 1e8, 0))
		},
		journalling, journalling)
	var decisions []Decision
	options.OnInterval = func(d Decision) { decisions = append(decisions, d) }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if n := len(decisions[1].Weights); n != 1 {
		t.Errorf("with /cb gone %d were steered", n)
	}
	if at := decisions[2].Weights; len(at) != 2 || at[1].After != 500 {
		t.Errorf("the new /cb, idle, is at %+v, want its ideal at once", at)
	}
	if got := f.weight("/cb"); got != (Setting{Default: 250}) {
		t.Errorf("the new /cb was restored to %+v, its own was 250", got)
	}
}

func TestAReplacedCgroupIsNotRestoredInto(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	dir := t.TempDir()
	state := sampleState()
	state.Cgroups = []CgroupState{{Cgroup: "/ca", ID: f.ids["/ca"], Weight: Setting{Default: 100}}, {Cgroup: "/cb", ID: 5, Weight: Setting{Default: 9}}, {Cgroup: "/cc", ID: 6, Weight: Setting{Default: 9}}}
	if err := state.Save(dir); err != nil {
		t.Fatal(err)
	}
	outcome, ok, err := Restore(dir, "", "loop0", "", func(*State) (Host, error) { return f.host(), nil }, discard)
	if err != nil || !ok || !slices.Equal(outcome.Restored, []string{"/ca"}) || !slices.Equal(outcome.Replaced, []string{"/cb"}) || !slices.Equal(outcome.Vanished, []string{"/cc"}) {
		t.Errorf("%+v %v %v", outcome, ok, err)
	}
}

func TestAVanishedCgroupDuringTheWriteIsNoError(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	var log bytes.Buffer
	options := fakeOptions(t, f, twoEqual, repeat(4, journalling)...)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	writes := 0
	f.before = func(string) error {
		if writes++; writes == 3 {
			f.remove("/ca")
			f.remove("/cb")
		}
		return nil
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("log:\n%s", log.String())
	}
}

// A cgroup's name is any bytes, and the state is JSON: names that are not UTF-8 would be the
// same there, and the state would be refused.
func TestACgroupWhoseNameIsNoTextIsLeftAlone(t *testing.T) {
	f := newFakeHost("/ca", "/cb", "/c\xff", "/c\xfe")
	options := fakeOptions(t, f, "containers: [{match: '/c*', weight: 500}]", repeat(3, journalling)...)
	options.OnInterval = func(Decision) {
		if state, err := LoadState(options.Config.StateDir, "loop0"); err != nil || len(state.Cgroups) != 2 {
			t.Errorf("the state is %+v, %v; want two cgroups", state, err)
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	for _, write := range f.writes() {
		if strings.HasPrefix(write, "/c\xff") || strings.HasPrefix(write, "/c\xfe") {
			t.Errorf("wrote %q", write)
		}
	}
}
