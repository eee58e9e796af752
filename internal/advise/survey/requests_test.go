package survey

import (
	"math"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/advise"
	"github.com/daybook-project/daybook/internal/disktime"
)

// A container's share is that of the containers with I/O. Where it is not known, there is
// none.
func TestTheShareIsOfContainersWithIO(t *testing.T) {
	device := account.Device{Containers: []account.Container{
		{Cgroup: "/", ChargedWriteBytes: 9}, {Cgroup: "/a", TargetShare: 0.3}, {Cgroup: "/b", TargetShare: 0.1, ChargedWriteBytes: 1}, {Cgroup: "/c", TargetShare: 0.6},
	}}
	for cgroup, want := range map[string]float64{"/a": 0.75, "/b": 1, "/": 0, "/d": 0} {
		if got := ShareOf(device, cgroup); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s has %g, want %g", cgroup, got, want)
		}
	}
}

func TestRequestsAreTheContainersOrOthers(t *testing.T) {
	var in advise.Input
	sums := disktime.Sums{Requests: 2, QueuedNanoseconds: 3e9, ServedNanoseconds: 4e9}
	for _, class := range []disktime.Class{disktime.Read, disktime.Data, disktime.Metadata, disktime.Flush} {
		Count(&in, class, true, sums)
		Count(&in, class, false, sums)
	}
	one := advise.Requests{Count: 2, QueuedSeconds: 3, ServedSeconds: 4}
	if in.Own != one || in.Others != one.Add(one) || in.Metadata != one.Add(one) || in.Flushes != one.Add(one) {
		t.Errorf("%+v", in)
	}
}

func TestMovesAreNearBetweenRequestsOfTheVolume(t *testing.T) {
	var in advise.Input
	sums := disktime.Moves{Requests: 1, Roots: 2, Sectors: 4, AloneMicroseconds: 3e6, Products: 6e6}
	for _, of := range []struct {
		class, before  disktime.Class
		own, ownBefore bool
	}{
		{disktime.Data, disktime.Data, true, true}, {disktime.Data, disktime.Metadata, true, false}, // near
		{disktime.Metadata, disktime.Data, false, true}, {disktime.Metadata, disktime.Metadata, false, false}, // near
		{disktime.Data, disktime.Data, true, false}, {disktime.Metadata, disktime.Read, false, false}, // from others'
		{disktime.Data, disktime.Metadata, false, false}, {disktime.Read, disktime.Data, false, true}, // to others'
	} {
		CountMoves(&in, of.class, of.own, of.before, of.ownBefore, sums)
	}
	of := func(n uint64) advise.Moves {
		f := float64(n)
		return advise.Moves{Requests: n, Roots: 2 * f, Sectors: 4 * f, AloneSeconds: 3 * f, Products: 6 * f}
	}
	if in.Journal != of(1) || in.Near != of(4) || in.OwnMoves != of(6) || in.Moves != of(8) {
		t.Errorf("in the journal %+v, near %+v, own %+v, all %+v", in.Journal, in.Near, in.OwnMoves, in.Moves)
	}
}
