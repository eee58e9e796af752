package advice

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/advise"
	"github.com/daybook-project/daybook/internal/disktime"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/internal/experiment/pair"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/synctime"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// madeUpAdvice returns cases in which half of the time is the neighbour's data, and a
// volume on a device makes gain times the throughput.
func madeUpAdvice(gain, p99Seconds float64) Result {
	waiter := account.Waiter{
		Cgroup: "/x/A/container", Device: "loop0", Operation: "fsync", Calls: 1000, WaitSeconds: 10,
		Phases:    map[string]float64{"ordered_data": 5, "flush": 5},
		Culprits:  []account.Culprit{{Cgroup: "/x/B/container", Name: "B", Cause: "ordered_data", Seconds: 5}, {Cause: "flush", Seconds: 5}},
		Histogram: []account.WaitBucket{{UpperSeconds: 0.01, Calls: 980}, {UpperSeconds: 0.05, Calls: 20}},
	}
	other := waiter
	other.Cgroup, other.Calls = "/x/B/container", 7
	shared := pair.Phase{
		Arrangement: fixture.SharedExt4, Neighbour: fio.HighFsync, Seconds: 10, Rate: 100,
		SyncA: synctime.Latencies{P99Seconds: 0.05},
		Samples: []account.Sample{{IntervalSeconds: 10, Waiters: []account.Waiter{other, waiter}, Devices: []account.Device{{Containers: []account.Container{
			{Cgroup: "A", TargetShare: 0.6, ChargedWriteBytes: 1}, {Cgroup: "B", TargetShare: 0.2, ChargedWriteBytes: 1},
		}}}}},
		Requests: []pair.Requests{
			{Who: "A", Class: disktime.Data, Sums: disktime.Sums{Requests: 1000, QueuedNanoseconds: 1e9, ServedNanoseconds: 1e9}},
			{Who: "B", Class: disktime.Data, Sums: disktime.Sums{Requests: 100, QueuedNanoseconds: 1e8, ServedNanoseconds: 1e9}},
		},
		Moves: []pair.Moves{
			{Who: "A", Class: disktime.Data, BeforeWho: "root", BeforeClass: disktime.Metadata, Moves: disktime.Moves{Requests: 30, Roots: 300}},
			{Who: "A", Class: disktime.Data, BeforeWho: "B", BeforeClass: disktime.Data, Moves: disktime.Moves{Requests: 70, Roots: 7000}},
		},
	}
	device := pair.Phase{Arrangement: fixture.OnDevices, Neighbour: fio.HighFsync, Seconds: 10, Rate: 100 * gain, SyncA: synctime.Latencies{P99Seconds: p99Seconds}}
	part := pair.Part{Case: pair.Case{Disk: pair.SlowHDD, Load: pair.MariaDB, DataMode: pair.Ordered}, Phases: []pair.Phase{shared, device}}
	return Result{Parts: map[string][]pair.Part{HeldOutSet: {part}}, Loads: map[string][2]string{HeldOutSet: {"1", "2"}}}
}

func TestPredictionsAreComparedWithTheTruth(t *testing.T) {
	base, err := madeUpAdvice(1, 1).compare(HeldOutSet)
	if err != nil || len(base) != 1 || !base[0].enough || base[0].kind != advise.DeviceVolume || base[0].calls != 1000 {
		t.Fatalf("%v: %+v", err, base)
	}
	gain, p99 := base[0].gain.Median, base[0].p99.Median
	if gain < 1.2 || gain > 3 {
		t.Errorf("a gain of %g without half of the time", gain)
	}
	for name, test := range map[string]struct {
		gain, p99 float64
		holds     bool
	}{
		"right":            {gain, p99, true},
		"within the bound": {gain * 1.45, p99 / 1.45, true},
		"too much":         {gain * 1.6, p99, false},
		"too little":       {gain / 1.6, p99, false},
		"a long tail":      {gain, p99 * 1.6, false},
		"starved":          {0, p99, false},
	} {
		r := madeUpAdvice(test.gain, test.p99)
		all, err := r.compare(HeldOutSet)
		if err != nil || len(all) != 1 || all[0].holds() != test.holds {
			t.Errorf("%s: %v, %+v", name, err, all)
		}
		if err := r.Check(); (err == nil) != test.holds {
			t.Errorf("%s: %v", name, err)
		}
		page, err := r.Report()
		if err != nil || len(page.Tables) != 2 || !strings.Contains(page.Tables[0].Note, "load average was 1 at the beginning") {
			t.Errorf("%s: %v, %+v", name, err, page.Tables)
		}
	}
}

// What was measured in rounds is one measurement, and the page says how far the rounds
// are apart.
func TestRoundsAreOneMeasurement(t *testing.T) {
	one := madeUpAdvice(1.5, 0.03)
	part := &one.Parts[HeldOutSet][0]
	second := slices.Clone(part.Phases)
	second[0].Seconds, second[0].Rate = 30, 200
	second[1].SyncA.P99Seconds = 0.12
	// The second round has another disk.
	again := slices.Clone(second[0].Samples[0].Waiters)
	for n := range again {
		again[n].Device = "loop1"
	}
	second[0].Samples = []account.Sample{{IntervalSeconds: 30, Waiters: again, Devices: second[0].Samples[0].Devices}}
	part.Phases = append(part.Phases, second...)
	shared := joined(*part, fixture.SharedExt4, fio.HighFsync)
	if shared.Rounds != 2 || shared.Seconds != 40 || shared.Rate != 175 || len(shared.Samples) != 2 ||
		len(shared.Requests) != 2 || shared.Requests[0].Requests != 2000 || len(shared.Moves) != 2 || shared.Moves[1].Roots != 14000 {
		t.Errorf("%+v", shared)
	}
	if in := input(pair.Case{Disk: pair.SlowHDD, DataMode: pair.Ordered}, *shared); in.Near.Requests != 60 || in.OwnMoves.Requests != 200 || in.Moves.Requests != 200 ||
		in.OthersCalls != 14 || math.Abs(in.Share-0.75) > 1e-9 {
		t.Errorf("%d syncs of others, a share of %g; moves near %+v, own %+v, all %+v", in.OthersCalls, in.Share, in.Near, in.OwnMoves, in.Moves)
	}
	if p99 := joined(*part, fixture.OnDevices, fio.HighFsync).SyncA.P99Seconds; math.Abs(p99-0.06) > 1e-9 {
		t.Errorf("p99 is %g, want the geometric mean of 0.03 and 0.12", p99)
	}
	all, err := one.compare(HeldOutSet)
	if err != nil || len(all) != 1 || all[0].calls != 2000 || math.Abs(all[0].measuredGain-150.0/175) > 1e-9 {
		t.Errorf("%v: %+v", err, all)
	}
	rows := one.repeatTable(HeldOutSet).Rows
	if len(rows) != 2 || !slices.Equal(rows[0], []string{"S", "1", "0", "0", "1", "2.00", "1.00"}) || !slices.Equal(rows[1], []string{"VD", "1", "0", "1", "0", "1.00", "4.00"}) {
		t.Errorf("%q", rows)
	}
	if rows := madeUpAdvice(1.5, 0.03).repeatTable(HeldOutSet).Rows; len(rows) != 0 {
		t.Errorf("one round was measured: %q", rows)
	}
	part.Phases[3].Rate = 0 // nothing was done in the second round
	if rows := one.repeatTable(HeldOutSet).Rows; len(rows) != 2 || rows[1][3] != "0" || !strings.HasPrefix(rows[1][5], "–") {
		t.Errorf("%q", rows)
	}
}

// The inputs of a prediction are in the figures that are kept: a later model can be
// applied to them.
func TestAPredictionIsTheSameFromItsFigures(t *testing.T) {
	measured := madeUpAdvice(1.5, 0.03)
	text, err := json.Marshal(measured)
	if err != nil {
		t.Fatal(err)
	}
	var kept Result
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	before, err := measured.compare(HeldOutSet)
	if err != nil || len(before) != 1 || !before[0].enough {
		t.Fatalf("%v: %+v", err, before)
	}
	after, err := kept.compare(HeldOutSet)
	if err != nil || len(after) != 1 || after[0].gain != before[0].gain || after[0].p99 != before[0].p99 || after[0].calls != before[0].calls {
		t.Errorf("%v: %+v, before %+v", err, after, before)
	}
}

// The page says of a disk that the model has seen that it is not held out.
func TestASeenDiskIsNotHeldOut(t *testing.T) {
	for disk, want := range map[string]string{pair.SlowHDD: "is not held out any more", pair.QuickHDD: "; not with the held-out set. "} {
		r := madeUpAdvice(1.5, 0.03)
		r.Parts[HeldOutSet][0].Disk = disk
		page, err := r.Report()
		if err != nil || !strings.Contains(page.Tables[0].Note, want) || !strings.Contains(page.Tables[0].Note, "another simulated disk ("+pair.Describe(disk)+")") {
			t.Errorf("%s: %v, %+v; want %q", disk, err, page.Tables, want)
		}
	}
	for _, part := range cases(HeldOutSet) {
		if part.Disk == pair.SlowHDD {
			t.Errorf("%s is measured for the bound, but the model has seen the disk", part)
		}
	}
}

// What is too little for a prediction counts as a miss.
func TestTooFewSyncsAreAMiss(t *testing.T) {
	r := madeUpAdvice(1.5, 0.03)
	waiters := r.Parts[HeldOutSet][0].Phases[0].Samples[0].Waiters
	waiters[1].Calls = advise.MinCalls - 1
	if all, err := r.compare(HeldOutSet); err != nil || len(all) != 1 || all[0].enough || all[0].holds() || r.Check() == nil {
		t.Errorf("%v: %+v", err, all)
	}
	if err := (Result{}).Check(); err != nil {
		t.Errorf("nothing was measured: %v", err)
	}
}

// Half of the held-out cases are no verdict, however good they are.
func TestAnInterruptedSetMissesTheBound(t *testing.T) {
	r := madeUpAdvice(1, 1)
	all, err := r.compare(HeldOutSet)
	if err != nil {
		t.Fatal(err)
	}
	r = madeUpAdvice(all[0].gain.Median, all[0].p99.Median)
	for asked, want := range map[int]string{0: "", 1: "", 2: "interrupted after 1 of 2 parts"} {
		r.Asked = map[string]int{HeldOutSet: asked}
		if err := r.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("1 of %d parts: %v", asked, err)
		}
	}
}

// The figures name one host.
func TestSetsOfAnotherHostAreNotKept(t *testing.T) {
	kept := madeUpAdvice(1, 1)
	kept.Host = report.ThisHost()
	kept.Host.Kernel = "x"
	if _, err := Measure(t.Context(), fixture.Lab{}, Quick, []string{TuningSet}, kept, nil); err == nil || !strings.Contains(err.Error(), "another host (kernel x,") {
		t.Errorf("%v", err)
	}
}

// The check on a real kernel, in its short form: the shared file system gives a
// prediction, and the volume is measured.
func TestAdviceIsMeasured(t *testing.T) {
	vmtest.Long(t)
	needs.Tool(t, "fio")
	l := fixturetest.New(t)
	saved := 0
	save := func(a Result) error { saved = len(a.Parts[OtherLoadSet]); return nil }
	r, err := Measure(t.Context(), l, Quick, []string{OtherLoadSet}, Result{}, save)
	if err != nil {
		t.Fatal(err)
	}
	if saved != 1 || r.Asked[OtherLoadSet] != 1 {
		t.Errorf("%d parts of %d were saved, want 1", saved, r.Asked[OtherLoadSet])
	}
	all, err := r.compare(OtherLoadSet)
	if err != nil || len(all) != 1 || all[0].measuredGain <= 0 || all[0].measuredP99 <= 0 {
		t.Fatalf("%v: %+v", err, all)
	}
	t.Logf("%+v", all[0])
	if all[0].before.SyncA.Calls > 0 && all[0].calls == 0 {
		t.Error("the container's syncs are not in the input of the prediction")
	}
	if _, err := Measure(t.Context(), l, Quick, []string{"another"}, Result{}, save); err == nil {
		t.Error("an unknown set: no error")
	}
}
