package serve

import (
	"strings"
	"testing"

	"github.com/daybook-project/daybook/volume"
	"github.com/daybook-project/daybook/volume/records"
)

// A value of 0 would mean that nothing is allocated.
func TestAllocatedBytesAreAbsentWithoutAnImage(t *testing.T) {
	found := false
	for _, gauge := range volumeGauges {
		if !strings.Contains(gauge.desc.String(), `"daybook_volume_allocated_bytes"`) {
			continue
		}
		found = true
		for _, c := range []struct {
			record records.Volume
			want   bool
		}{
			{records.Volume{}, true},
			{records.Volume{Device: "/dev/sdb1"}, false},
			{records.Volume{LVM: records.NewLogicalVolume("vg0", "", "1")}, false},
		} {
			if got := gauge.of(volume.Overview{Record: c.record}); got != c.want {
				t.Errorf("%+v: %v", c.record, got)
			}
		}
	}
	if !found {
		t.Error("no such metric")
	}
}
