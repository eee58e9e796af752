package serve

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/daybook-project/daybook/internal/account"
)

func testSample(containers ...account.Container) account.Sample {
	return account.Sample{
		Time: time.Unix(1_800_000_000, 5e8), IntervalSeconds: 5, Estimator: "handles",
		Devices: []account.Device{{
			Device: "loop0", Dev: "7:0", DiskBytes: 1000, JournalBytes: 300, JournalElsewhereBytes: 100, MetadataBytes: 50,
			UnaccountedBytes: -7, Transactions: 4, CommitSeconds: 0.25, LostEvents: 1, Containers: containers,
		}},
	}
}

func alpha() account.Container {
	return account.Container{Cgroup: "/ca", Name: "alpha", Runtime: "docker", Share: 0.25, TargetShare: 0.5, Weight: 100,
		ChargedReadBytes: 1, ChargedWriteBytes: 2, JournalBytes: 3, MetadataBytes: 4, UnchargedBytes: 5, ReturnedBytes: 6, ForcedCommits: 7}
}

// memorySample also has a journal in memory.
func memorySample() account.Sample {
	in := alpha()
	in.MemoryJournalBytes, in.MemoryJournalHandles = 640, 5
	sample := testSample(in)
	sample.Devices[0].MemoryJournals = []account.MemoryJournal{{Filesystem: "loop0p1", LoggedBytes: 704, Handles: 6, Commits: 2}}
	return sample
}

// values returns each series, written as name{labels}, with its value; for a
// summary the sum and the count.
func values(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	result := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			suffix := "{" + strings.Join(labels, ",") + "}"
			switch {
			case metric.GetCounter() != nil:
				result[family.GetName()+suffix] = metric.GetCounter().GetValue()
			case metric.GetGauge() != nil:
				result[family.GetName()+suffix] = metric.GetGauge().GetValue()
			case metric.GetSummary() != nil:
				result[family.GetName()+"_sum"+suffix] = metric.GetSummary().GetSampleSum()
				result[family.GetName()+"_count"+suffix] = float64(metric.GetSummary().GetSampleCount())
			case metric.GetHistogram() != nil:
				result[family.GetName()+"_sum"+suffix] = metric.GetHistogram().GetSampleSum()
				result[family.GetName()+"_count"+suffix] = float64(metric.GetHistogram().GetSampleCount())
				for _, b := range metric.GetHistogram().GetBucket() {
					result[fmt.Sprintf("%s_bucket%s<=%.6f", family.GetName(), suffix, b.GetUpperBound())] = float64(b.GetCumulativeCount())
				}
			}
		}
	}
	return result
}

func TestNamesHelpAndUnitsFollowTheConventions(t *testing.T) {
	m := NewMetrics(10)
	m.Observe(testSample(alpha()))
	problems, err := testutil.CollectAndLint(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestWhatHoldsTheSharesIsShown(t *testing.T) {
	for _, c := range []struct {
		control         *account.Control
		ignored, limits float64
	}{
		{&account.Control{Actuator: account.ActuatorWeights}, 0, 0},
		{&account.Control{Actuator: account.ActuatorWeights, WeightsIgnored: true}, 1, 0},
		{&account.Control{Actuator: account.ActuatorLimits, WeightsIgnored: true}, 1, 1},
	} {
		m := NewMetrics(10)
		sample := testSample(alpha())
		sample.Devices[0].Control = c.control
		m.Observe(sample)
		got := values(t, m)
		if got["daybook_control_weights_ignored{device=loop0}"] != c.ignored || got["daybook_control_limits{device=loop0}"] != c.limits {
			t.Errorf("%+v: %v", c.control, got)
		}
	}
	m := NewMetrics(10)
	m.Observe(testSample(alpha()))
	if _, there := values(t, m)["daybook_control_limits{device=loop0}"]; there {
		t.Error("a disk that nobody controls has a metric of its control")
	}
}

func TestSamplesAddUpAndGaugesShowTheLast(t *testing.T) {
	m := NewMetrics(10)
	first := testSample(alpha())
	first.OwnersForgotten = 20
	m.Observe(first)
	later := alpha()
	later.Share, later.Weight = 0.75, 900
	last := testSample(later)
	last.OwnersForgotten, last.CgroupsSkipped = 2, 9
	m.Observe(last)
	m.RecordingFailed()
	got := values(t, m)
	const c = "{cgroup=/ca,container=alpha,device=loop0,runtime=docker}"
	const d = "{device=loop0}"
	want := map[string]float64{
		"daybook_charged_read_bytes_total" + c: 2, "daybook_charged_write_bytes_total" + c: 4,
		"daybook_journal_bytes_total" + c: 6, "daybook_metadata_bytes_total" + c: 8, "daybook_uncharged_bytes_total" + c: 10,
		"daybook_returned_bytes_total" + c: 12, "daybook_forced_commits_total" + c: 14,
		"daybook_share_ratio" + c: 0.75, "daybook_target_share_ratio" + c: 0.5, "daybook_weight" + c: 900,
		"daybook_disk_bytes_total" + d: 2000, "daybook_disk_journal_bytes_total" + d: 600,
		"daybook_disk_journal_elsewhere_bytes_total" + d: 200, "daybook_disk_metadata_bytes_total" + d: 100,
		"daybook_lost_events_total" + d: 2, "daybook_unaccounted_bytes" + d: -7,
		"daybook_commit_duration_seconds_sum" + d: 2, "daybook_commit_duration_seconds_count" + d: 8,
		"daybook_owners_forgotten_total{}": 22, "daybook_skipped_cgroups{}": 9, "daybook_samples_total{}": 2, "daybook_interval_seconds{}": 5, "daybook_last_sample_timestamp_seconds{}": 1_800_000_000.5,
		"daybook_lost_waits_total{}": 0, "daybook_missed_wait_events_total{}": 0, "daybook_tracked_containers{}": 1, "daybook_merged_containers_total{}": 0, "daybook_recording_errors_total{}": 1,
	}
	for name, value := range want {
		if v, there := got[name]; !there || v != value {
			t.Errorf("%s is %g (there: %v), want %g", name, v, there, value)
		}
	}
	for name := range got {
		if _, there := want[name]; !there {
			t.Errorf("%s is not tested", name)
		}
	}
}

// The others are controlled, so their series and the health check show nothing of it.
func TestMissingDisksAreCountedWhereControlHasAConfiguration(t *testing.T) {
	const series = "daybook_control_missing_disks{}"
	m := NewMetrics(10)
	if n, ok := values(t, m)[series]; ok {
		t.Errorf("%g without a configuration", n)
	}
	for _, want := range []int{2, 0} {
		m.SetMissingDisks(want)
		if n, ok := values(t, m)[series]; !ok || n != float64(want) {
			t.Errorf("%g (there: %v), want %d", n, ok, want)
		}
	}
}

// An alert on old samples has nothing to compare if the metric is absent.
func TestUntilTheFirstSampleItsTimeIsThatOfTheStart(t *testing.T) {
	began := float64(time.Now().UnixNano()) / 1e9
	m := NewMetrics(10)
	m.Expect(7 * time.Second)
	got := values(t, m)
	if at := got["daybook_last_sample_timestamp_seconds{}"]; at < began || at > began+60 {
		t.Errorf("the start was %f s after this test's", at-began)
	}
	if length := got["daybook_interval_seconds{}"]; length != 7 {
		t.Errorf("the interval is %g s", length)
	}
	m.ExpectNone()
	for name := range values(t, m) {
		if name == "daybook_last_sample_timestamp_seconds{}" || name == "daybook_interval_seconds{}" {
			t.Errorf("no sample is expected, and there is %s", name)
		}
	}
}

func TestJournalsInMemoryHaveSeriesWhereThereAreSome(t *testing.T) {
	const c, f = "{cgroup=/ca,container=alpha,device=loop0,runtime=docker}", "{device=loop0,filesystem=loop0p1}"
	m := NewMetrics(10)
	m.Observe(testSample(alpha()))
	for name := range values(t, m) {
		if strings.Contains(name, "memory_journal") {
			t.Errorf("%s is there, and no journal in memory", name)
		}
	}
	m.Observe(memorySample())
	m.Observe(memorySample())
	m.Observe(testSample(alpha())) // counters stay
	got := values(t, m)
	for name, value := range map[string]float64{
		"daybook_memory_journal_bytes_total" + c: 1280, "daybook_memory_journal_handles_total" + c: 10,
		"daybook_filesystem_memory_journal_bytes_total" + f: 1408, "daybook_filesystem_memory_journal_handles_total" + f: 12,
		"daybook_filesystem_memory_journal_commits_total" + f: 4,
	} {
		if v, there := got[name]; !there || v != value {
			t.Errorf("%s is %g (there: %v), want %g", name, v, there, value)
		}
	}
	if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestVanishedContainersLoseTheirGaugesAtOnceAndTheirCountersLater(t *testing.T) {
	m := NewMetrics(10)
	m.Observe(testSample(alpha()))
	const c = "{cgroup=/ca,container=alpha,device=loop0,runtime=docker}"
	passed := 0.0
	for ; passed <= expireSeconds; passed += 5 {
		got := values(t, m)
		if _, there := got["daybook_journal_bytes_total"+c]; !there {
			t.Fatalf("the counter went after %g s", passed)
		}
		if _, there := got["daybook_share_ratio"+c]; there != (passed == 0) {
			t.Fatalf("%g s after the container went, its share is there: %v", passed, there)
		}
		m.Observe(testSample())
	}
	m.Observe(testSample())
	if _, there := values(t, m)["daybook_journal_bytes_total"+c]; there {
		t.Errorf("the counter is still there after %g s", passed)
	}
	// The series of the disk expire likewise.
	for range int(expireSeconds/5) + 1 {
		m.Observe(account.Sample{IntervalSeconds: 5})
	}
	if _, there := values(t, m)["daybook_disk_bytes_total{device=loop0}"]; there {
		t.Error("the disk is still there")
	}
}

func TestContainersBeyondTheBoundAreAddedUp(t *testing.T) {
	m := NewMetrics(3)
	var many []account.Container
	for i := range 10 {
		many = append(many, account.Container{Cgroup: fmt.Sprintf("/c%d", i), Name: fmt.Sprintf("n%d", i), JournalBytes: 100, Share: 0.1, TargetShare: 0.05, Weight: 50})
	}
	m.Observe(testSample(many...))
	m.Observe(testSample(many...))
	got := values(t, m)
	const rest = "{cgroup=(others),container=(others),device=loop0,runtime=}"
	if v := got["daybook_journal_bytes_total"+rest]; v != 1400 {
		t.Errorf("the rest has %g journal bytes, want 1400", v)
	}
	if v := got["daybook_share_ratio"+rest]; v < 0.699 || v > 0.701 {
		t.Errorf("the rest has the share %g, want 0.7", v)
	}
	if v := got["daybook_merged_containers_total{}"]; v != 14 {
		t.Errorf("%g are merged, want 14", v)
	}
	series, sum := 0, 0.0
	for name, v := range got {
		if strings.HasPrefix(name, "daybook_journal_bytes_total") {
			series++
			sum += v
		}
	}
	if series != 4 || sum != 2000 {
		t.Errorf("%d series with %g bytes, want 4 with 2000", series, sum)
	}
}

func TestHostileNamesAndDuplicatesDoNotBreakAScrape(t *testing.T) {
	m := NewMetrics(10)
	a, b := alpha(), alpha()
	a.Name, b.Name = "bad\xff\n\"}{", "bad\xfe\n\"}{"
	m.Observe(testSample(a, b, alpha(), alpha()))
	got := values(t, m)
	if v := got["daybook_journal_bytes_total{cgroup=/ca,container=alpha,device=loop0,runtime=docker}"]; v != 6 {
		t.Errorf("two of one name have %g journal bytes, want 6", v)
	}
}
