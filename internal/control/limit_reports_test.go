package control

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

func TestWhatALimitDoesNotHoldIsReportedOnce(t *testing.T) {
	for _, test := range []struct {
		name string
		flat bool
		want int
	}{{"cgroup v1", true, 1}, {"cgroup v2", false, 0}} {
		f := newFakeHost("/ca", "/cb", "/cb/inner", "/cbx/inner")
		options := fakeOptions(t, f, "actuator: limits\n"+twoEqual, deepReaders(f, 20, func(int) bool { return false })...)
		options.Disks[0].Host.FlatLimits = test.flat
		var log bytes.Buffer
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "does not apply to the cgroups below"); n != test.want || n > 0 && !strings.Contains(log.String(), "cgroup=/cb below=/cb/inner") {
			t.Errorf("%s: logged %d times; want %d:\n%s", test.name, n, test.want, log.String())
		}
	}
}

func TestAStateDirectoryOnTheLimitedDiskIsReported(t *testing.T) {
	for _, actuator := range []string{ActuatorLimits, ActuatorAuto, ActuatorWeights} {
		f := newFakeHost("/ca", "/cb")
		options := fakeOptions(t, f, "actuator: "+actuator+"\n"+twoEqual)
		options.Disks[0].Carries = func(path string) bool { return path == options.Config.StateDir }
		var log bytes.Buffer
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if logged := strings.Contains(log.String(), "state_dir: /run/daybook"); logged != (actuator != ActuatorWeights) {
			t.Errorf("%s: logged %v:\n%s", actuator, logged, log.String())
		}
	}
}

func TestARecordingOnTheLimitedDiskIsReported(t *testing.T) {
	for _, path := range []string{"/mnt/recording", ""} {
		options := fakeOptions(t, newFakeHost("/ca", "/cb"), twoEqual)
		options.Recording = path
		options.Disks[0].Carries = func(path string) bool { return path != options.Config.StateDir }
		var log bytes.Buffer
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if logged := strings.Contains(log.String(), "record to another disk"); logged != (path != "") {
			t.Errorf("%q: logged %v:\n%s", path, logged, log.String())
		}
	}
}

// A container that seeks cannot have its share of the bytes. That is said once, and not of one
// that only waits for its turn.
func TestAShareOutOfReachIsSaidOnce(t *testing.T) {
	for _, test := range []struct {
		name string
		// alone is what /ca does if /cb does nothing, in 5 s.
		alone float64
		want  int
	}{
		{"seeks", 11e6, 1},
		{"only waits", 200e6, 0},
	} {
		f := newFakeHost("/ca", "/cb")
		var log bytes.Buffer
		options := fakeOptions(t, f, "actuator: limits\n"+twoEqual, repeat(30, func() account.Sample {
			f.mu.Lock()
			others := min(180e6, most(f.reads["/cb"]))
			f.mu.Unlock()
			ca, cb := did("/ca", uint64(test.alone*(1-others/200e6)), 0), did("/cb", uint64(others), 0)
			ca.BusySeconds, cb.BusySeconds = 5, 5
			return sampleOf(ca, cb)
		})...)
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "/ca cannot have its share of 50 %"); n != test.want {
			t.Errorf("%s: said %d times; want %d:\n%s", test.name, n, test.want, log.String())
		}
	}
}
