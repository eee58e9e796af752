package account

import (
	"math"
	"testing"
)

func TestSumAddsTheFirstDeviceOfEachSample(t *testing.T) {
	samples := []Sample{
		{IntervalSeconds: 5, Devices: []Device{{
			Device: "loop0", DiskBytes: 100, JournalBytes: 10, MetadataBytes: 5, UnaccountedBytes: -2, Transactions: 1, CommitSeconds: 4, LostEvents: 1,
			Control:    &Control{Actuator: ActuatorWeights, WeightsIgnored: true},
			Containers: []Container{{Cgroup: "/a", Name: "A", ChargedReadBytes: 60, JournalBytes: 10, Weight: 100, RequestSeconds: 3, BusySeconds: 1}},
		}, {Device: "loop1", DiskBytes: 1 << 30}}},
		{IntervalSeconds: 5}, // nothing was seen
		{IntervalSeconds: 5, Devices: []Device{{
			Device: "loop0", DiskBytes: 200, JournalBytes: 20, UnaccountedBytes: 5, Transactions: 3, CommitSeconds: 8, LostEvents: 2,
			Control: &Control{Actuator: ActuatorLimits},
			Containers: []Container{
				{Cgroup: "/a", Name: "A", ChargedWriteBytes: 10, UnchargedBytes: 20, Weight: 200, TargetShare: 0.5, RequestSeconds: 4, BusySeconds: 2},
				{Cgroup: "/b", Name: "B", ChargedReadBytes: 300, Weight: 100},
			},
		}}},
	}
	sum := Sum(samples)
	if sum.Device != "loop0" || sum.DiskBytes != 300 || sum.JournalBytes != 30 || sum.MetadataBytes != 5 || sum.UnaccountedBytes != 3 || sum.LostEvents != 3 {
		t.Errorf("%+v", sum)
	}
	if sum.Transactions != 4 || sum.CommitSeconds != 7 { // (1 * 4 s + 3 * 8 s) / 4
		t.Errorf("%d commits of %g s on average; want 4 of 7 s", sum.Transactions, sum.CommitSeconds)
	}
	a := Sample{Devices: []Device{sum}}.Container("A")
	if a.Bytes() != 100 || a.Weight != 200 || a.TargetShare != 0.5 || math.Abs(a.Share-0.25) > 1e-9 {
		t.Errorf("A is %+v; want 100 bytes, a quarter of all, and the last weight", a)
	}
	if a.RequestSeconds != 7 || a.BusySeconds != 3 {
		t.Errorf("A had requests outstanding for %g s, %g s together; want 3 and 7", a.BusySeconds, a.RequestSeconds)
	}
	if sum.Control == nil || *sum.Control != (Control{Actuator: ActuatorLimits, WeightsIgnored: true}) {
		t.Errorf("control: %+v; want limits, weights ignored", sum.Control)
	}
	if none := (Sample{Devices: []Device{sum}}).Container("C"); none.Bytes() != 0 || none.Name != "" {
		t.Errorf("a container that is not there: %+v", none)
	}
}
