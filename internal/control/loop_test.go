package control

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
)

const twoEqual = "containers: [{match: /ca, weight: 500}, {match: /cb, weight: 500}]"

func journalling() account.Sample { return sampleOf(did("/ca", 100e6, 0), did("/cb", 70e6, 30e6)) }

func TestIdealsAreSetThenCorrectedThenRestored(t *testing.T) {
	f := newFakeHost("/ca", "/cb", "/other")
	var during Setting
	steps := append([]func() account.Sample{func() account.Sample {
		during = f.weight("/ca")
		return journalling()
	}}, repeat(5, journalling)...)
	options := fakeOptions(t, f, twoEqual, steps...)
	var decisions []Decision
	options.OnInterval = func(d Decision) { decisions = append(decisions, d) }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if during.Effective() != 500 {
		t.Errorf("before the first sample /ca has %+v, want the ideal 500", during)
	}
	last := decisions[len(decisions)-1].Weights
	if len(decisions) != 6 || len(last) != 2 || last[0].After <= 520 || last[1].After >= 480 || last[0].After+last[1].After != 1000 {
		t.Errorf("decided %+v", last)
	}
	for _, cgroup := range []string{"/ca", "/cb", "/other"} {
		if got := f.weight(cgroup); got != (Setting{Default: 100}) {
			t.Errorf("in the end %s has %+v", cgroup, got)
		}
	}
	for _, write := range f.writes() {
		if strings.HasPrefix(write, "/other") {
			t.Errorf("wrote %s, which nobody asked for", write)
		}
	}
	if entries, _ := filepath.Glob(filepath.Join(options.Config.StateDir, "*.json")); len(entries) != 0 {
		t.Errorf("state left: %v", entries)
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.limits["/cb"] = 50e6
	f.tunables["low_latency"] = "1"
	options := fakeOptions(t, f, "tunables: {low_latency: 0, timeout_sync: 40}\n"+twoEqual, repeat(3, journalling)...)
	options.DryRun = true
	options.Config.StateDir = filepath.Join(t.TempDir(), "none")
	var last Decision
	options.OnInterval = func(d Decision) { last = d }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if len(f.writes()) != 0 {
		t.Errorf("wrote %v", f.writes())
	}
	if _, err := os.Stat(options.Config.StateDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state directory was made: %v", err)
	}
	if len(last.Weights) != 2 || last.Weights[0].Before != 100 || last.Weights[0].After <= 500 || len(last.Limits) != 1 {
		t.Errorf("decided %+v", last)
	}
}

func TestWithoutAListTheWeightsFoundAreMadeTrue(t *testing.T) {
	f := newFakeHost("/ca", "/cb", "/quiet", "/d/x")
	f.weights["/ca"] = Setting{Default: 300}
	options := fakeOptions(t, f, "", repeat(6, func() account.Sample {
		return sampleOf(did("/ca", 150e6, 0), did("/cb", 35e6, 15e6), did(account.RootCgroup, 1e6, 0))
	})...)
	var last Decision
	options.OnInterval = func(d Decision) { last = d }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if len(last.Weights) != 2 || last.Weights[0].Ideal != 300 || last.Weights[1].Ideal != 100 || last.Weights[1].After >= 95 {
		t.Errorf("decided %+v", last.Weights)
	}
	for _, write := range f.writes() {
		if strings.HasPrefix(write, "/quiet") || strings.HasPrefix(write, "/d") {
			t.Errorf("wrote %s", write)
		}
	}
}

func TestLowLatencyIsReportedOrSwitched(t *testing.T) {
	for _, test := range []struct {
		tunables, during string
		told             int
	}{{"", "0", 0}, {"tunables: auto\n", "0", 0}, {"tunables: none\n", "1", 1}, {"tunables: {low_latency: 1}\n", "1", 0}} {
		f := newFakeHost("/ca")
		f.tunables["low_latency"] = "1"
		var log bytes.Buffer
		options := fakeOptions(t, f, test.tunables+"containers: [{match: /ca, weight: 500}]", repeat(3, journalling)...)
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		during := ""
		options.OnInterval = func(Decision) { during = f.tunables["low_latency"] }
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "low_latency is on"); n != test.told || during != test.during || f.tunables["low_latency"] != "1" {
			t.Errorf("%q: logged %d times, %s during control and %s in the end; want %d and %s, then 1",
				test.tunables, n, during, f.tunables["low_latency"], test.told, test.during)
		}
	}
}

func TestASourceThatFailsEndsItWithEverythingRestored(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	options := fakeOptions(t, f, twoEqual)
	options.OpenSource = func([]string, time.Duration) (account.Source, error) { return &failingSource{}, nil }
	err := Run(context.Background(), options)
	if err == nil || !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("error %v", err)
	}
	options.OpenSource = func([]string, time.Duration) (account.Source, error) { return nil, errors.New("no BTF") }
	if err := Run(context.Background(), options); err == nil || !strings.Contains(err.Error(), "no BTF") {
		t.Errorf("error %v", err)
	}
	for _, cgroup := range []string{"/ca", "/cb"} {
		if got := f.weight(cgroup); got != (Setting{Default: 100}) {
			t.Errorf("%s has %+v", cgroup, got)
		}
	}
}

type failingSource struct{ calls int }

func (s *failingSource) Next(context.Context) (account.Sample, error) {
	if s.calls++; s.calls > 2 {
		return account.Sample{}, errors.New("the disk is gone")
	}
	return journalling(), nil
}

func (s *failingSource) Close() error { return nil }

func TestSamplesWithoutSenseAreSurvived(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	options := fakeOptions(t, f, twoEqual,
		func() account.Sample { return account.Sample{} },
		func() account.Sample { s := journalling(); s.IntervalSeconds = -3; return s },
		func() account.Sample {
			return sampleOf(did("/ca", 1<<63, 1<<63), did("", 5, 5), did("//x/../ca", 5, 5), did("/cb", 1, 1))
		},
		func() account.Sample { s := journalling(); s.Time = time.Unix(-1e9, 0); return s }) // a clock step
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
}

// An interruption is no error. If it were one, a failure to restore would count as a part of it.
func TestAnInterruptionWhileTheMeterStartsIsNoError(t *testing.T) {
	for _, fails := range []bool{false, true} {
		f := newFakeHost("/ca", "/cb")
		f.before = func(what string) error {
			if fails && strings.Contains(what, "restore") {
				return errors.New("no")
			}
			return nil
		}
		ctx, cancel := context.WithCancel(context.Background())
		options := fakeOptions(t, f, twoEqual)
		options.OpenSource = func([]string, time.Duration) (account.Source, error) {
			cancel()
			return nil, ctx.Err()
		}
		if err := Run(ctx, options); (err != nil) != fails || errors.Is(err, context.Canceled) {
			t.Errorf("a restore that fails is %v: %v", fails, err)
		}
	}
}
