package control

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// systemd disables io for the children of a slice if none of its units needs it. The weights
// and limits below are gone with it, and so is what was to be restored.
func TestWhatIsGoneWithItsControllerNeedsNoRestore(t *testing.T) {
	for _, killed := range []bool{false, true} {
		f := newFakeHost("/ca", "/cb")
		f.limits["/cb"] = 50e6
		options := fakeOptions(t, f, twoEqual)
		c := began(t, options)
		for range 3 {
			c.interval(journalling())
		}
		f.mu.Lock()
		f.withoutIO["/cb"] = true
		f.mu.Unlock()
		c.interval(journalling())
		var err error
		if killed {
			c.lock.Release()
			_, _, err = Restore(options.Config.StateDir, "", "loop0", "", func(*State) (Host, error) { return f.host(), nil }, discard)
		} else {
			err = c.stop()
		}
		if err != nil {
			t.Errorf("killed %t: %v", killed, err)
		}
		if got := f.weight("/ca"); got != (Setting{Default: 100}) {
			t.Errorf("killed %t: /ca has %+v", killed, got)
		}
		// So control can start again.
		if err := Run(context.Background(), fakeOptions(t, f, twoEqual, journalling)); err != nil {
			t.Errorf("killed %t: control does not start again: %v", killed, err)
		}
	}
}

// The weight of a cgroup with io enabled again is the kernel's default. Nobody chose that.
func TestAWeightIsWrittenAgainOnceIOIsEnabledAgain(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	var log bytes.Buffer
	enabled := func(io bool) func() account.Sample {
		return func() account.Sample {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.withoutIO["/cb"] = !io; io {
				f.weights["/cb"] = Setting{Default: 100}
			}
			return journalling()
		}
	}
	options := fakeOptions(t, f, twoEqual, journalling, journalling, enabled(false), journalling, enabled(true), journalling)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	var last Decision
	options.OnInterval = func(d Decision) { last = d }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "another program") || !strings.Contains(log.String(), "has a weight file again") {
		t.Errorf("logged:\n%s", log.String())
	}
	if w := last.Weights[1]; w.Ideal != 500 || w.Before == 100 {
		t.Errorf("decided %+v", w)
	}
	if got := f.weight("/cb"); got != (Setting{Default: 100}) {
		t.Errorf("in the end it has %+v", got)
	}
}

// On cgroup v1 a service that is restarted has another cgroup at the same path, with the
// default weight. No program chose that.
func TestACgroupThatIsMadeAgainHasNoChosenWeight(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	var log bytes.Buffer
	again := func(cgroups ...string) func() account.Sample {
		return func() account.Sample {
			for _, cgroup := range cgroups {
				f.remove(cgroup)
				f.create(cgroup)
			}
			return journalling()
		}
	}
	options := fakeOptions(t, f, twoEqual, journalling, again("/cb"), journalling, again("/ca", "/cb"), journalling)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	var last Decision
	options.OnInterval = func(d Decision) { last = d }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"another program", "as by a change of its scheduler"} {
		if strings.Contains(log.String(), text) {
			t.Errorf("logged %q:\n%s", text, log.String())
		}
	}
	if w := last.Weights[1]; w.Ideal != 500 || w.Before == 100 {
		t.Errorf("decided %+v", w)
	}
}
