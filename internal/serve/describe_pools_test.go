package serve

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/daybook-project/daybook/internal/awaittest"
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

// Only CAP_SYS_PTRACE opens what is mounted for the host alone. It is attached nevertheless.
func TestBytesOfAFileSystemThatCannotBeOpenedAreAbsent(t *testing.T) {
	found := 0
	for _, gauge := range volumeGauges {
		for _, name := range []string{`"daybook_volume_used_bytes"`, `"daybook_volume_free_bytes"`} {
			if strings.Contains(gauge.desc.String(), name) {
				found++
				for _, c := range []struct {
					overview volume.Overview
					want     bool
				}{
					{volume.Overview{}, false}, {volume.Overview{Mountpoint: "/srv/db1"}, false},
					{volume.Overview{Mountpoint: "/srv/db1", UsedBytes: 1}, true}, {volume.Overview{Mountpoint: "/srv/db1", FreeBytes: 1}, true},
				} {
					if got := gauge.of(c.overview); got != c.want {
						t.Errorf("%s of %+v: %v", name, c.overview, got)
					}
				}
			}
		}
	}
	if found != 2 {
		t.Errorf("%d such metrics", found)
	}
}

// A rate of a gauge is wrong after each mount: Prometheus expects a new start from
// counters only.
func TestSumsSinceTheMountAreCounters(t *testing.T) {
	p := NewPools(func() ([]string, error) { return []string{"/pool"}, nil })
	p.patience = awaittest.Patience
	p.read = func(string) (poolReading, error) {
		return poolReading{volumes: []volume.Overview{
			{Record: volume.Record{Name: "db1"}, Memory: &volume.MemoryUse{RingLines: 4, LoggedBytes: 640, Waits: 3}},
		}}, nil
	}
	const want = `# HELP daybook_volume_memory_journal_logged_bytes_total Bytes logged in the volume's journal in memory since its mount.
# TYPE daybook_volume_memory_journal_logged_bytes_total counter
daybook_volume_memory_journal_logged_bytes_total{pool="/pool",volume="db1"} 640
# HELP daybook_volume_memory_journal_waits_total Operations that waited for room in the volume's journal in memory since its mount.
# TYPE daybook_volume_memory_journal_waits_total counter
daybook_volume_memory_journal_waits_total{pool="/pool",volume="db1"} 3
`
	if err := testutil.CollectAndCompare(p, strings.NewReader(want), "daybook_volume_memory_journal_logged_bytes_total", "daybook_volume_memory_journal_waits_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(p); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
