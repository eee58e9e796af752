package guestvolumes

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/vm/vmtest"
)

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	for _, good := range []Options{Full, Quick} {
		good.Kernels = []string{"6.12"}
		if err := good.Check(); err != nil {
			t.Error(err)
		}
	}
	for name, change := range map[string]func(*Options){
		"no kernel":                 func(o *Options) { o.Kernels = nil },
		"no divider":                func(o *Options) { o.Dividers = nil },
		"no load":                   func(o *Options) { o.Loads = nil },
		"an arrangement not here":   func(o *Options) { o.Arrangements = []fixture.Arrangement{fixture.SharedExt4} },
		"a divider there is not":    func(o *Options) { o.Dividers = []string{"cfq"} },
		"a load there is not":       func(o *Options) { o.Loads = []string{"reading"} },
		"no time":                   func(o *Options) { o.Seconds = 0 },
		"no round":                  func(o *Options) { o.Rounds = 0 },
		"an interval above a phase": func(o *Options) { o.Interval = time.Hour },
		"an interval below 1 s":     func(o *Options) { o.Interval = 0 },
	} {
		o := Full
		o.Kernels = []string{"6.12"}
		change(&o)
		if o.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// madeUpRun returns a run in which A has this share of the bytes of both, and both used
// this fraction of the allowed rate.
func madeUpRun(kernel, divider string, share, used float64) Run {
	run := Run{Kernel: kernel}
	run.Arrangement, run.Load, run.Divider = fixture.PlacedOnXFS, Growing, divider
	all := used * float64(run.allowed())
	run.MeasuredSeconds, run.ShareA, run.Shares = 1, share, []float64{share - 0.1, share + 0.1}
	run.A.Bytes, run.B.Bytes = uint64(all*share), uint64(all*(1-share))
	return run
}

func TestResultsAreHeldAgainstTheBounds(t *testing.T) {
	result := func(runs ...Run) Result { return Result{Runs: runs} }
	good := madeUpRun("6.12.1", IOCost, 0.725, 0.95)
	for _, r := range []Result{
		result(good), result(madeUpRun("6.12.1", IOCost, 0.675, 1)),
		result(good, madeUpRun("6.12.1", BFQ, 0.5, 0.5), madeUpRun("6.12.1", IOCostFull, 0.5, 1)),
	} {
		if err := r.Check(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for name, c := range map[string]struct {
		result Result
		want   string
	}{
		"below":         {result(madeUpRun("6.12.1", IOCost, 0.66, 1)), "-4.00 points"},
		"above":         {result(madeUpRun("6.12.1", IOCost, 0.74, 1)), "+4.00 points"},
		"one of two":    {result(good, madeUpRun("6.1.1", IOCost, 0.6, 1)), "6.1.1, VX, growing, io.cost: A's share is off"},
		"idle disk":     {result(madeUpRun("6.12.1", IOCost, 0.7, 0.8)), "used 80 % of the allowed rate"},
		"nothing":       {result(), "nothing was measured"},
		"nothing bound": {result(madeUpRun("6.12.1", BFQ, 0.7, 1)), "nothing was measured"},
	} {
		if err := c.result.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v; want %q", name, err, c.want)
		}
	}
}

// waiting returns a run in which A waits for each sync, and makes so many in 50 s: fio runs
// longer than the guest's counters are watched.
func waiting(arrangement fixture.Arrangement, round int, syncs uint64) Run {
	run := madeUpRun("6.12.1", IOCost, 0.1, 1)
	run.Arrangement, run.Load, run.Round = arrangement, Waiting, round
	run.MeasuredSeconds, run.A.Syncs, run.A.SyncSeconds = 40, syncs, 50
	return run
}

func TestSyncsOfAContainerThatWaitsAreJudgedBesideAPartition(t *testing.T) {
	volume, partition := fixture.PlacedOnXFS, fixture.OwnPartitions
	slow := waiting(partition, 0, 800)
	slow.A.SyncSeconds = 0 // a result of before
	for name, c := range map[string]struct {
		runs       []Run
		want, kept string
	}{
		"as many":            {[]Run{waiting(volume, 0, 900), waiting(partition, 0, 1000)}, "", "yes"},
		"few":                {[]Run{waiting(volume, 0, 1), waiting(partition, 0, 10)}, "6.12.1, VX, waiting, io.cost: A has 0.10 times the syncs of a partition in round 0; want at least 0.9", "**no**"},
		"few in one round":   {[]Run{waiting(volume, 0, 89), waiting(volume, 1, 100), waiting(partition, 0, 100), waiting(partition, 1, 100)}, "0.89 times the syncs of a partition in round 0", "**no**"},
		"no partition":       {[]Run{waiting(volume, 0, 10)}, "no verdict", "no verdict"},
		"of another round":   {[]Run{waiting(volume, 0, 10), waiting(partition, 1, 10)}, "no verdict", "no verdict"},
		"one without a sync": {[]Run{waiting(volume, 0, 10), waiting(partition, 0, 0)}, "no verdict", "no verdict"},
		"before":             {[]Run{waiting(volume, 0, 1000), slow}, "", "yes"},
	} {
		r := Result{Runs: c.runs}
		if err := r.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		if got := r.kept(c.runs[0]); got != c.kept {
			t.Errorf("%s: %q; want %q", name, got, c.kept)
		}
	}
	if got := waiting(volume, 0, 100).syncs(); got != 2 {
		t.Errorf("%g syncs a second; want 2", got)
	}
}

// fakeVolumesGuest returns the same share for each case, and records that it was closed.
type fakeVolumesGuest struct {
	kernel string
	share  float64
	closed *bool
}

func (g fakeVolumesGuest) Kernel() string { return g.kernel }
func (g fakeVolumesGuest) Close() error   { *g.closed = true; return nil }
func (g fakeVolumesGuest) Run(_ context.Context, c Case, tell func(string)) (Phase, error) {
	tell("now")
	phase := madeUpRun(g.kernel, c.Divider, g.share, 1).Phase
	phase.Case = c
	return phase, nil
}

func TestRunsMeasuredAgainReplaceTheOnesBefore(t *testing.T) {
	var closed bool
	share := 0.6
	o := Full
	o.Boot = func(_ context.Context, kernel string) (Guest, error) {
		return fakeVolumesGuest{kernel + ".9-amd64", share, &closed}, nil
	}
	o.Kernels = []string{"6.12", "6.1"}
	all, err := Bench(t.Context(), fixture.Lab{}, o)
	// Debian's 6.1 has no ublk.
	each := (2*len(Arrangements()) - 1) * len(Loads()) * len(Dividers())
	if err != nil || len(all.Runs) != each || !closed {
		t.Fatalf("%d runs, closed %v, %v; want %d", len(all.Runs), closed, err, each)
	}
	if first := all.Runs[0]; first.Kernel != "6.1.9-amd64" || first.Arrangement != fixture.PlacedOnXFS || first.Load != Growing || first.Divider != IOCost {
		t.Errorf("the first run is %+v", first)
	}
	share = 0.7
	again := o
	again.Kernels, again.Arrangements, again.Loads, again.Dividers = []string{"6.1"}, []fixture.Arrangement{fixture.PlacedOnXFS}, []string{Growing}, []string{IOCost}
	again.Before = all
	// A second round of a partition, which was measured before.
	later := all.Runs[len(all.Runs)-1]
	later.Kernel, later.Load, later.Divider, later.Round = all.Runs[0].Kernel, Growing, IOCost, 1
	again.Before.Runs = append(slices.Clone(all.Runs), later)
	all, err = Bench(t.Context(), fixture.Lab{}, again)
	// Without M and P of this load and divider: they ran at another time.
	if err != nil || len(all.Runs) != each-2 || all.Runs[0].ShareA != 0.7 || all.Runs[1].ShareA != 0.6 {
		t.Fatalf("%d runs, %v; want %d, and only the first measured again: %+v", len(all.Runs), err, each-2, all.Runs[:2])
	}
	for _, run := range all.Runs[1:] {
		if run.Kernel == all.Runs[0].Kernel && run.Load == Growing && run.Divider == IOCost {
			t.Errorf("an earlier run stays beside one of now: %s, round %d", run.kind(), run.Round)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var back Result
	if err := json.Unmarshal(text, &back); err != nil || back.Runs[5].compare(all.Runs[5]) != 0 || back.Runs[5].A != all.Runs[5].A {
		t.Errorf("kept and read again: %+v, %v; want %+v", back.Runs[5], err, all.Runs[5])
	}
	report, err := all.Report()
	if err != nil {
		t.Fatal(err)
	}
	page := string(report.Markdown("make bench-guest-volumes", ""))
	for _, want := range []string{
		"## Linux 6.1.9-amd64", "## Linux 6.12.9-amd64", "| VX, growing, io.cost | 70.0 % | +0.0 | 60 to 80 % |", "| **no** |", "| yes |", "| P, rewriting, bfq | 60.0 % |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	again.Before.Host.Kernel = "x"
	if _, err := Bench(t.Context(), fixture.Lab{}, again); err == nil || !strings.Contains(err.Error(), "another host (kernel x,") {
		t.Errorf("figures of another host: %v", err)
	}
	wrong := errors.New("no such kernel")
	o.Boot = func(context.Context, string) (Guest, error) { return nil, wrong }
	if _, err := Bench(t.Context(), fixture.Lab{}, o); !errors.Is(err, wrong) {
		t.Errorf("a boot that failed: %v", err)
	}
}

// The syncs of an arrangement are compared with those on a partition of the same round.
func TestSyncsAreComparedWithinARound(t *testing.T) {
	var r Result
	for round, syncs := range [][2]uint64{{100, 90}, {400, 200}, {50, 40}} {
		for n, arrangement := range []fixture.Arrangement{fixture.OwnPartitions, fixture.PlacedOnXFS} {
			run := madeUpRun("6.12.1", IOCost, 0.7, 1)
			run.Round, run.Arrangement, run.A.Syncs = round, arrangement, syncs[n]
			r.put(run)
		}
	}
	slices.SortStableFunc(r.Runs, Run.compare)
	page, err := r.Report()
	if err != nil {
		t.Fatal(err)
	}
	text := string(page.Markdown("make bench-guest-volumes", ""))
	for _, want := range []string{"| VX, growing, io.cost | 3 | 90.0 | 0.80 | 0.90, 0.50, 0.80 |", "| P, growing, io.cost | 3 | 100.0 | 1.00 | 1.00, 1.00, 1.00 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
}

func TestTheGuestsCountersAreRead(t *testing.T) {
	dev, err := blockdev.ParseDev("254:0")
	if err != nil {
		t.Fatal(err)
	}
	held, err := parseHeld("7:0 rbytes=1 cost.wait=9\n254:0 rbytes=1 wbytes=2 cost.usage=5 cost.wait=1500000 cost.indebt=0\n", dev)
	if err != nil || held != 1500*time.Millisecond {
		t.Errorf("held back for %v, %v", held, err)
	}
	if held, err := parseHeld("254:0 rbytes=1\n", dev); err != nil || held != 0 {
		t.Errorf("under BFQ held back for %v, %v", held, err)
	}
	waited, err := parseWaited(" 1 2 3 4 5 6 7 8 9 10 2500 12 13 14 15\n")
	if err != nil || waited != 2500*time.Millisecond {
		t.Errorf("waited %v, %v", waited, err)
	}
	if _, err := parseWaited("1 2 3"); err == nil {
		t.Error("a short stat: no error")
	}
	if _, err := parseHeld("254:0 cost.wait=x\n", dev); err == nil {
		t.Error("a wait that is no number: no error")
	}
}

// Each arrangement has the parts of its description and restores the disk. Whether
// measured shares match the weights is for the benchmark, which takes minutes.
func TestGuestVolumesRunAndLeaveNothing(t *testing.T) {
	vmtest.InGuest(t, vmtest.Config{
		Disks: []string{"4G,bps=32M"}, Modules: "ext4,xfs,bfq,loop,dm-mod", Give: []string{"mke2fs", "mkfs.xfs", "fio", "dmsetup"}, Memory: "2G", OneKernel: true,
	}, func(t *testing.T) {
		lab := fixturetest.New(t)
		for _, c := range []Case{
			{Arrangement: fixture.PlacedOnXFS, Load: Rewriting, Divider: IOCost}, {Arrangement: fixture.OwnPartitions, Load: Rewriting, Divider: BFQ},
			{Arrangement: MappedOnXFS, Load: Rewriting, Divider: BFQ},
		} {
			phase := measured(t, lab, c)
			for name, x := range map[string]Container{"A": phase.A, "B": phase.B} {
				if x.Bytes <= x.JournalBytes || x.JournalBytes == 0 || x.Syncs == 0 || x.SyncMeanSeconds <= 0 || (x.Held > 0) != (c.Divider == IOCost) {
					t.Errorf("%s, %s under %s: %+v", name, c.Arrangement, c.Divider, x)
				}
			}
			if len(phase.Shares) != phase.Case.Seconds/2 || phase.ShareA <= 0.3 || phase.DiskBytes < phase.A.Bytes || phase.Queue <= 0 || phase.Idle <= 0 || phase.Idle >= 1 {
				t.Errorf("%s under %s: %+v", c.Arrangement, c.Divider, phase)
			}
		}
		disk, err := blockdev.Lookup(vmtest.Device(t, "disk0"))
		if err != nil {
			t.Fatal(err)
		}
		if err := disk.CheckUnused(); err != nil {
			t.Error(err)
		}
		if cost, err := lab.Tree.Cost(disk.Dev); err != nil || cost.Enabled {
			t.Errorf("afterwards io.cost: %+v, %v", cost, err)
		}
		if loops, err := blockdev.Loops(); err != nil || len(loops) > 0 {
			t.Errorf("loop devices were left: %v, %v", loops, err)
		}
	})
}

// measured measures a case, in longer phases until both containers have worked: on a
// busy host one of them can be stopped for most of a short phase.
func measured(t *testing.T, lab fixture.Lab, c Case) Phase {
	t.Helper()
	for seconds := 4; ; seconds *= 2 {
		c.Seconds, c.Interval = seconds, 2*time.Second
		phase, err := runCase(t.Context(), lab, c, 4*time.Second, func(line string) { t.Log(line) })
		if err != nil {
			t.Fatalf("%s under %s: %v", c.Arrangement, c.Divider, err)
		}
		t.Logf("%+v", phase)
		seen := phase.ShareA > 0.3 && phase.Idle > 0
		for _, x := range []Container{phase.A, phase.B} {
			seen = seen && x.Syncs > 0 && x.JournalBytes > 0
		}
		if seen || seconds >= 64 {
			return phase
		}
	}
}

// answer is FIEMAP's answer for extents of logical, physical and length in MiB, and flags.
func answer(extents ...[4]uint64) []byte {
	var all []byte
	for _, e := range extents {
		one := make([]byte, fiemapExtentBytes)
		for i := range 3 {
			binary.NativeEndian.PutUint64(one[8*i:], e[i]<<20)
		}
		binary.NativeEndian.PutUint32(one[40:], uint32(e[3]))
		all = append(all, one...)
	}
	return all
}

func TestOnlyAWholeImageIsMapped(t *testing.T) {
	disk := blockdev.Dev{Major: 254}
	table, err := linearTable("a.img", answer([4]uint64{0, 8, 1, 0x800}, [4]uint64{1, 2, 3, 0x801}), 3<<20, disk)
	if want := "0 2048 linear 254:0 16384\n2048 4096 linear 254:0 4096"; err != nil || table != want {
		t.Errorf("%q, %v; want %q", table, err, want)
	}
	for name, extents := range map[string][]byte{
		"nothing": nil, "short": answer([4]uint64{0, 8, 2, 0}), "with a hole": answer([4]uint64{0, 8, 1, 0}, [4]uint64{2, 9, 1, 0}),
		"shared": answer([4]uint64{0, 8, 3, 0x2000}), "without a place": answer([4]uint64{0, 0, 3, 2}),
	} {
		if table, err := linearTable("a.img", extents, 3<<20, disk); err == nil {
			t.Errorf("%s: %q", name, table)
		}
	}
}
