package control

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// costlyLimits are samples of deepReaders in which limits cost two thirds of the throughput. third
// is what a third container does in each sample, in bytes; 0: it does nothing.
func costlyLimits(f *fakeHost, samples int, obeys func(n int) bool, third func(n int) uint64) (steps []func() account.Sample) {
	n := 0
	for _, step := range deepReaders(f, samples, obeys) {
		steps = append(steps, func() account.Sample {
			sample := step()
			containers := &sample.Devices[1].Containers
			if f.reads["/ca"]+f.reads["/cb"] > 0 {
				for n := range *containers {
					(*containers)[n].ChargedReadBytes /= 3
				}
			}
			if n++; third(n) > 0 {
				*containers = append(*containers, did("/cc", third(n), 0))
			}
			return sample
		})
	}
	return steps
}

// Where limits cost more than they give, weights come back for a while.
func TestLimitsThatCostThroughputEnd(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	var log bytes.Buffer
	options := fakeOptions(t, f, twoEqual, costlyLimits(f, 30, func(int) bool { return false }, func(int) uint64 { return 0 })...)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	limited := 0
	options.OnInterval = func(Decision) {
		if f.reads["/ca"]+f.reads["/cb"] > 0 {
			limited++
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "limits cost the disk's throughput"); n != 1 || limited < 4 || limited > 10 {
		t.Errorf("logged %d times; limits in force in %d of 30 samples; the log:\n%s", n, limited, log.String())
	}
}

// What limits cost is also compared where a container does I/O only now and then, and after one has
// ended that was active once.
func TestLimitsThatCostThroughputEndWithFewerContainersThanOnce(t *testing.T) {
	for _, test := range []struct {
		name    string
		samples int
		obeys   func(n int) bool
		third   func(n int) uint64
	}{
		{"one pauses", 30, func(int) bool { return false }, func(n int) uint64 { return 20e6 * uint64(n%2) }},
		{"one has ended", 60, func(n int) bool { return n <= 30 }, func(n int) uint64 {
			if n <= 5 {
				return 100e6
			}
			return 0
		}},
	} {
		f := newFakeHost("/ca", "/cb", "/cc")
		var log bytes.Buffer
		options := fakeOptions(t, f, "tunables: none\ncontainers: [{match: '/c?', weight: 500}]", costlyLimits(f, test.samples, test.obeys, test.third)...)
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "limits cost the disk's throughput"); n != 1 {
			t.Errorf("%s: logged %d times; want once:\n%s", test.name, n, log.String())
		}
	}
}

// A container whose bytes cost the disk more than others' lowers what all do together if it has
// its share. That is no fault of the limits.
func TestLimitsStayWhereTheSharesAreWorthTheThroughput(t *testing.T) {
	for _, test := range []struct {
		name   string
		seeker uint64
		said   string
	}{
		{"it has 15 times as much", 15e6, "limits stay, although"},
		{"it has as much as before", 1e6, "limits cost the disk's throughput"},
	} {
		f := newFakeHost("/ca", "/cb")
		var log bytes.Buffer
		options := fakeOptions(t, f, "tunables: none\n"+twoEqual, repeat(25, func() account.Sample {
			f.mu.Lock()
			limited := f.reads["/cb"] > 0
			f.mu.Unlock()
			ca, cb := did("/ca", 1e6, 0), did("/cb", 199e6, 0)
			if limited {
				ca, cb = did("/ca", test.seeker, 0), did("/cb", 15e6, 0)
			}
			ca.BusySeconds, cb.BusySeconds = 5, 5
			return sampleOf(ca, cb)
		})...)
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		for _, said := range []string{"limits stay, although", "limits cost the disk's throughput"} {
			want := 0
			if said == test.said {
				want = 1
			}
			if n := strings.Count(log.String(), said); n != want {
				t.Errorf("%s: said %q %d times; want %d:\n%s", test.name, said, n, want, log.String())
			}
		}
	}
}
