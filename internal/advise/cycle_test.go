package advise

import (
	"math"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// busy is a container of which a sync follows the other, 10 ms of the disk for each, beside
// another that has the disk for 20 ms of the 40 between two syncs. The last 10 are idle.
func busy() Input {
	in := example()
	in.Seconds, in.Calls, in.WaitSeconds = 8, 200, 8
	in.Phases = map[string]float64{ownData: 4, logWrites: 1.5, flush: 2.5}
	in.Culprits = nil
	in.Histogram = []account.WaitBucket{{UpperSeconds: 0.036, Calls: 100}, {UpperSeconds: 0.045, Calls: 90}, {UpperSeconds: 0.09, Calls: 10}}
	in.Own, in.Metadata, in.Flushes = Requests{200, 3, 1, 1}, Requests{400, 2, 0.8, 0.8}, Requests{200, 0.4, 0.2, 0.2}
	in.Others = Requests{400, 8, 4, 4}
	return in
}

func wantLength(t *testing.T, what string, got outcome, want float64) {
	t.Helper()
	if math.Abs(got.length.Median-want) > 1e-9 {
		t.Errorf("%s: %.4f ms between syncs, want %.4f", what, 1e3*got.length.Median, 1e3*want)
	}
}

// The time between two syncs is the container's requests, others' and the idle time.
func TestTheTimeBetweenSyncsIsDivided(t *testing.T) {
	in := busy()
	c := in.cycle()
	if !isNear(c.own(), 0.01) || !isNear(c.others, 0.02) || !isNear(c.paused, 0.01) || c.gap != 0 || !isNear(c.length(), 0.04) {
		t.Errorf("%+v", c)
	}
	// A commit is for all that wait for it.
	in.OthersCalls = 600
	if c := in.cycle(); !isNear(c.journal, 0.001) || !isNear(c.flushes, 0.00025) || !isNear(c.others, 0.02+0.003+0.00075) || !isNear(c.length(), 0.04) {
		t.Errorf("three of four syncs are others': %+v", c)
	}
	// Less than half of the time a sync is in progress, and 5 ms are for a write.
	in = busy()
	in.WaitSeconds, in.Phases = 2, map[string]float64{ownData: 1, flush: 1}
	in.Own.QueuedSeconds = 1
	if c := in.cycle(); !isNear(c.gap, 0.025) || !isNear(c.paused, 0.025) || !isNear(c.others, 0.005) || !isNear(c.length(), 0.04) {
		t.Errorf("a sync of 10 ms: %+v", c)
	}
	// Without the times of single requests, those of a disk that serves several at a time
	// are longer than the interval.
	in = busy()
	in.Own.ServedSeconds, in.Own.AloneSeconds = 12, 0
	in.Others.ServedSeconds, in.Others.AloneSeconds = 4, 0
	if c := in.cycle(); c.paused > 1e-12 || !isNear(c.length(), 0.04) || !isNear(c.data, 3*c.others) {
		t.Errorf("%+v", c)
	}
}

// In a volume the weights divide the disk's time. Others take no more than now for each
// sync.
func TestOthersHaveTheirTurnsByWeight(t *testing.T) {
	for share, want := range map[string]struct{ share, length float64 }{
		"most":   {0.8, 0.02 / 0.8},
		"half":   {0.5, 0.02 / 0.5},
		"little": {0.2, 0.04},
		"all":    {1, 0.02},
	} {
		in := busy()
		in.Share = want.share
		wantLength(t, share, in.onDevice(), want.length)
	}
	// In the range others have no turn, or two.
	in := busy()
	in.Share = 0.8
	if got := in.onDevice().length; !isNear(got.Low, 0.02) || !isNear(got.High, 0.03) {
		t.Errorf("%+v, want 20 to 30 ms", got)
	}
	// Without weights each of the requests that follow each other waits for one of others',
	// and so it does in an image.
	in = busy()
	in.Others = Requests{4000, 8, 4, 4}
	wantLength(t, "no weights", in.onDevice(), 0.02+chain*0.001)
	in.Share = 0.8
	wantLength(t, "in an image", in.inImage(), 0.02+chain*0.001)
	// On the shared file system the container's turn ends with its data.
	wantLength(t, "without ordered data", in.withoutOrderedData(), 0.02+0.001)
}

// Others that are limited, or have little to do, have no more to do beside a volume.
func TestOthersThatSeldomWaitHaveFewTurns(t *testing.T) {
	in := busy()
	in.Seconds, in.WaitSeconds, in.Phases = 2.6, 2.6, map[string]float64{ownData: 1, flush: 1.6}
	in.Others = Requests{40, 0, 0.4, 0.4} // 2 of the 13 ms between two syncs
	in.Rotational, in.SpanShare, in.Share = true, 0.01, 0.5
	// 9 ms of requests get 3.6 ms long.
	free, waiting := 0.0036+0.001+0.001, 0.4/2.6
	wantLength(t, "seldom", in.onDevice(), free+0.002*free/0.011/(1-waiting))
	in.Others.QueuedSeconds = 8
	wantLength(t, "always", in.onDevice(), free+0.002) // as much as now
}

// While syncs wait for limited data of others, the disk is idle. In a volume it is not.
func TestIdleTimeBehindOthersDataGoes(t *testing.T) {
	in := busy()
	in.Phases = map[string]float64{orderedData: 5.5, ownData: 1, logWrites: 0.5, flush: 1}
	in.Culprits = []Culprit{{Cgroup: "/b", Name: "b", Seconds: map[string]float64{orderedData: 5.2}}}
	in.Share = 1
	// 26 ms wait for others' data, for which the disk needs 20.
	wantLength(t, "limited others", in.onDevice(), 0.01+0.004)
	in.Share, in.WaitSeconds = 1, 16
	in.Phases[orderedData], in.Culprits[0].Seconds[orderedData] = 13.5, 10.4 // two calls at a time
	wantLength(t, "two at a time", in.onDevice(), 0.01+0.004)
	in.Culprits[0].Seconds[orderedData] = 4
	wantLength(t, "the disk is busy for others", in.onDevice(), 0.02)
}

// A call that waits outside of the disk's requests goes on doing so, and others are served.
func TestWaitsOutsideOfRequestsStay(t *testing.T) {
	in := busy()
	in.Share = 1
	in.Own, in.Phases = Requests{200, 0, 1, 1}, map[string]float64{ownData: 4, logWrites: 1, flush: 2}
	// 15 of the 20 ms of its data are not in requests, and the disk is idle for 10.
	if got := in.outside(); !isNear(got, 0.015) {
		t.Errorf("%g s outside of requests", got)
	}
	wantLength(t, "a full queue", in.onDevice(), 0.02+0.005)
	if got := in.onDevice().length; !isNear(got.Low, 0.02) || !isNear(got.High, 0.03) {
		t.Errorf("%+v; want none of these waits, or twice as long", got)
	}
	// Those of one call of 100 can be the longest, but those of half of the calls cannot be
	// as long as the shorter half.
	if r := predict(t, in)[DeviceVolume]; !isNear(r.P99Seconds.Median, in.quantile(0.99)) || r.P50Seconds.Median > 0.7*in.quantile(0.5) {
		t.Errorf("p50 is %g, now %g; p99 is %g, now %g", r.P50Seconds.Median, in.quantile(0.5), r.P99Seconds.Median, in.quantile(0.99))
	}
	in.Own, in.Metadata, in.Flushes = Requests{}, Requests{}, Requests{}
	if got := in.outside(); got != 0 {
		t.Errorf("%g s outside of requests that are not known", got)
	}
}

// Alone on a hard disk, a volume on a quarter of it has shorter seeks. The longest calls get
// shorter as the others, or not at all.
func TestShorterSeeksShortenCalls(t *testing.T) {
	in := busy()
	in.Others = Requests{}
	in.Rotational, in.SpanShare = true, 0.25
	// Seeks of half the length make 9 ms of requests a third shorter; 1 ms is the flush.
	const want = 0.04 - 0.009/3
	wantLength(t, "a quarter of the disk", in.onDevice(), want)
	r := predict(t, in)[DeviceVolume]
	least, most := in.quantile(0.99)*want/0.04, in.quantile(0.99)
	if !isNear(r.P50Seconds.Median, in.quantile(0.5)*want/0.04) || !isNear(r.P99Seconds.Median, math.Sqrt(least*most)) || r.P99Seconds.High < most || r.P99Seconds.Low > least {
		t.Errorf("p50 %+v and p99 %+v, want p99 from %g to %g", r.P50Seconds, r.P99Seconds, least, most)
	}
}

// In a volume a commit record follows its log. Ways from others' requests become as long as
// those between the container's data and its log.
func TestRecordsFollowTheirLogInAVolume(t *testing.T) {
	const base, perRoot, root = 0.001, 2e-6, 1000
	of := func(requests int, root float64) Moves {
		takes := base + perRoot*root
		return Moves{1, root, root * root, takes, root * takes}.repeated(requests)
	}
	in := busy()
	in.Others, in.Rotational, in.SpanShare = Requests{}, true, 0.25
	in.Journal = of(100, 0)                    // record after log
	in.Near = in.Journal.Add(of(400, root))    // and data after record, or log after data
	in.OwnMoves = in.Near.Add(of(100, 3*root)) // record after others' data
	in.Moves = in.OwnMoves.Add(of(50, 5*root))
	in.Own, in.Metadata = Requests{200, 0, 0.9, 0.9}, Requests{400, 0, 1.2, 1.2} // 200 logs and records
	now := 600*base + perRoot*(400*root+100*3*root)
	want := 600*base + perRoot*(400*root/2)
	// Of 2.1 s of requests, so much is saved.
	if got := in.nearer().Median; !isNear(got, 1-(now-want)/2.1) {
		t.Errorf("requests take %g of now, want %g", got, 1-(now-want)/2.1)
	}
}

// repeated is so many of the same.
func (m Moves) repeated(n int) Moves {
	var all Moves
	for range n {
		all = all.Add(m)
	}
	return all
}

// With a journal in memory the journal's requests are gone, and one flush for a sync stays.
func TestAJournalInMemoryWritesNoLog(t *testing.T) {
	in := busy()
	in.Others = Requests{}
	wantLength(t, "a flush each", in.journalInMemory(), 0.04-0.004)
	in.Flushes.Count = 400
	wantLength(t, "two flushes each", in.journalInMemory(), 0.04-0.004-0.0005)
}

// The syncs of a closed loop: what the container writes between two of them takes the
// disk's time, too.
func TestWritesBetweenSyncsLimitTheGain(t *testing.T) {
	in := example()
	before := predict(t, in)[DeviceVolume].Gain.Median
	in.Own = Requests{200, 0.4, 3.6, 3.6} // 20 ms each, of which 4 ms are in the syncs
	after := predict(t, in)[DeviceVolume].Gain.Median
	if after > 0.8*before {
		t.Errorf("with 16 ms of writes between syncs the gain is %g, with 1 ms %g", after, before)
	}
}

// What stays of the calls has their distribution; what comes for the waits that go has that
// of exponentially distributed times.
func TestWhatStaysOfCallsHasTheirDistribution(t *testing.T) {
	in := busy()
	in.Share = 1
	in.Phases = map[string]float64{orderedData: 4, ownData: 1.6, logWrites: 0.8, flush: 1.6}
	in.Culprits = []Culprit{{Cgroup: "/b", Name: "b", Seconds: map[string]float64{orderedData: 4}}}
	call := in.wait() / 2 // 20 of 40 ms between syncs
	if got, want := predict(t, in)[DeviceVolume].P50Seconds.Median, call*(0.5*in.quantile(0.5)/in.wait()+0.5*math.Log(2)); !isNear(got, want) {
		t.Errorf("p50 is %g, want %g", got, want)
	}
}

// Few calls meet a turn of others', and these wait for a whole one.
func TestFewCallsWaitForLongTurns(t *testing.T) {
	in := busy() // a request of others' takes 10 ms
	for _, test := range []struct{ mean, p50, p99 float64 }{
		{0, 0, 0},
		{0.002, 0, 0.01 * math.Log(20)}, // one call of five
		{0.010, 0.01 * math.Log(2), 0.01 * math.Log(100)}, // each
		{0.030, 0.03 * math.Log(2), 0.03 * math.Log(100)}, // each waits for three
		{0.0000999, 0, 0}, // less than one of 100
	} {
		p50, p99 := in.behindTurns(0.5, test.mean), in.behindTurns(0.99, test.mean)
		if !isNear(p50.Median, test.p50) || !isNear(p99.Median, test.p99) {
			t.Errorf("mean %g: p50 %g and p99 %g, want %g and %g", test.mean, p50.Median, p99.Median, test.p50, test.p99)
		}
	}
	in.Share = 0.8
	r := predict(t, in)[DeviceVolume]
	// A quarter as long as own time are turns: 25 ms between syncs, 5 of them turns.
	call, turn := 0.025*in.wait()/0.04, 0.005*in.wait()/0.04
	own := (1 - turn/call) * call / in.wait()
	if want := own*in.quantile(0.5) + 0.01*math.Log(turn/0.01/0.01); own*in.quantile(0.99) > want || !isNear(r.P99Seconds.Median, want) {
		t.Errorf("p99 is %g, want %g", r.P99Seconds.Median, want)
	}
}

// The reason says what of the disk others have now, and then.
func TestTheReasonSaysHowTheDiskIsDivided(t *testing.T) {
	in := busy()
	in.Share = 0.8
	if got, want := predict(t, in)[DeviceVolume].Reason, "; the disk serves others for 50 % of the time, in a volume 20 %"; !strings.HasSuffix(got, want) {
		t.Errorf("%q; want %q at the end", got, want)
	}
	in.Others = Requests{}
	if got := predict(t, in)[DeviceVolume].Reason; strings.Contains(got, "serves others") {
		t.Errorf("%q without others", got)
	}
}
