package control

import (
	"maps"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// While a commit stops the disk, no limit changes, also not those of a container that reads and
// writes, to which its limit is divided.
func TestNoLimitChangesWhileTheDiskStops(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	step := func(ca, cb account.Container) account.Sample {
		sample := sampleOf(ca, cb)
		sample.IntervalSeconds = 0.5
		return sample
	}
	c := began(t, fakeOptions(t, f, "actuator: limits\n"+twoEqual))
	for range 40 {
		ca, cb := did("/ca", 6e6, 0), did("/cb", 8e6, 0)
		ca.BusySeconds, cb.BusySeconds, ca.ChargedWriteBytes = 0.5, 0.5, 6e6
		c.interval(step(ca, cb))
	}
	reads, writes := maps.Clone(f.reads), maps.Clone(f.limits)
	if reads["/ca"] == 0 || writes["/ca"] == 0 {
		t.Fatalf("limits %v and %v; want /ca limited in both directions", reads, writes)
	}
	for range 3 {
		c.interval(step(did("/ca", 0, 0), did("/cb", 0, 8e6)))
		if !maps.Equal(f.reads, reads) || !maps.Equal(f.limits, writes) {
			t.Fatalf("limits %v and %v while no request ends; want %v and %v", f.reads, f.limits, reads, writes)
		}
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
}
