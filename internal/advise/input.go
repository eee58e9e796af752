package advise

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/daybook-project/daybook/internal/account"
)

// Mode is what a commit of the file system does about new data.
type Mode string

// The modes.
const (
	// Ordered: a commit waits for the new data of all files in its transaction.
	Ordered Mode = "ordered"
	// Unwritten: new data is written before its extents enter a transaction
	// (dioread_nolock, the default since Linux 5.6).
	Unwritten Mode = "unwritten"
	// Writeback is data=writeback.
	Writeback Mode = "writeback"
	// Journal is data=journal.
	Journal Mode = "journal"
)

// Requests are those that ended on the disk in the interval.
type Requests struct {
	Count uint64
	// QueuedSeconds were spent in the scheduler, ServedSeconds on the disk, by all
	// requests together. AloneSeconds are the part of ServedSeconds after the request
	// before each on the disk has ended.
	QueuedSeconds, ServedSeconds, AloneSeconds float64
}

// Add returns the sum of two.
func (r Requests) Add(o Requests) Requests {
	return Requests{r.Count + o.Count, r.QueuedSeconds + o.QueuedSeconds, r.ServedSeconds + o.ServedSeconds, r.AloneSeconds + o.AloneSeconds}
}

// served is the mean time of a request on the disk, in seconds; 0 without requests.
func (r Requests) served() float64 { return ratio(r.ServedSeconds, float64(r.Count)) }

// queuedShare is the part of the time of the requests that they spend in the scheduler.
func (r Requests) queuedShare() float64 {
	return ratio(r.QueuedSeconds, r.QueuedSeconds+r.ServedSeconds)
}

// taken is the disk's time for the requests.
func (r Requests) taken() float64 {
	if r.AloneSeconds > 0 {
		return r.AloneSeconds
	}
	return r.ServedSeconds // not known
}

// Moves are those of the disk's head to small requests, as far as their sectors tell. Times
// are those of AloneSeconds in Requests.
type Moves struct {
	Requests uint64
	// Roots is the sum of the roots of the ways in sectors, Sectors that of the ways.
	Roots, Sectors float64
	// AloneSeconds are the times, Products the sum of root and time, multiplied.
	AloneSeconds, Products float64
}

// Add returns the sum of two.
func (m Moves) Add(o Moves) Moves {
	return Moves{m.Requests + o.Requests, m.Roots + o.Roots, m.Sectors + o.Sectors, m.AloneSeconds + o.AloneSeconds, m.Products + o.Products}
}

// minMoves is the least number of requests for a fit.
const minMoves = 100

// secondsPerRoot is by how much longer a request takes for each root of a sector of its
// way: the line with the least squares. It is not known from too few requests, or from
// ways of one length.
func (m Moves) secondsPerRoot() (seconds float64, known bool) {
	n := float64(m.Requests)
	variance := m.Sectors - m.Roots*m.Roots/n
	if m.Requests < minMoves || variance < 1 {
		return 0, false
	}
	return max(0, (m.Products-m.Roots*m.AloneSeconds/n)/variance), true
}

// Culprit is another container that the waiter waited for.
type Culprit struct {
	Cgroup, Name string
	// Seconds is by phase (account.WaitPhases).
	Seconds map[string]float64
}

// total is the whole time of a culprit.
func (c Culprit) total() float64 {
	var sum float64
	for _, seconds := range c.Seconds {
		sum += seconds
	}
	return sum
}

// Input is one measured interval of a container on one file system.
type Input struct {
	// Cgroup is the container's path in the account; "": not known.
	Cgroup string
	// Seconds is the length of the interval.
	Seconds float64
	// Calls are the syncs that ended. WaitSeconds is their whole time, Phases its
	// parts.
	Calls       uint64
	WaitSeconds float64
	Phases      map[string]float64
	// OthersCalls are the other syncs on the disk: of other containers, and on other file
	// systems.
	OthersCalls uint64
	// Culprits are other containers, the worst first.
	Culprits []Culprit
	// Histogram has the calls by their length, shortest first.
	Histogram []account.WaitBucket
	// Own are the container's own writes of data, Metadata are all writes of the
	// journal and of metadata, Others are others' reads and writes of data, Flushes
	// are those of the disk's cache.
	Own, Metadata, Others, Flushes Requests
	// Moves are all of the disk, OwnMoves those to Own and Metadata. Near are those of
	// OwnMoves from another of them, Journal those of Near between two of Metadata.
	Moves, OwnMoves, Near, Journal Moves
	// Mode is that of the file system.
	Mode Mode
	// Rotational reports that seeks take most of the time of a small request.
	Rotational bool
	// SpanShare is the part of the disk, 0 to 1, that a volume would occupy; 0: not
	// known.
	SpanShare float64
	// Share is the part of the disk's time, 0 to 1, that the container has by its weight if
	// others always have requests waiting; 0: not known, or the scheduler does not divide
	// the time by weights.
	Share float64
	// DeviceVolume, ImageVolume and MemoryJournal say why the host has no place for
	// such a remedy; "" if it has.
	DeviceVolume, ImageVolume, MemoryJournal string
}

// The phases of account.WaitPhases.
const (
	lock, orderedData, logWrites = "lock", "ordered_data", "log"
	flush, checkpoint            = "flush", "checkpoint"
	ownData, rest                = "own_data", "rest"
)

// MinCalls is the least number of calls for a prediction. The mean of so many is exact
// to about a third.
const MinCalls = 30

// Check returns an error if the measurement is impossible.
func (in Input) Check() error {
	if !(in.Seconds > 0) || math.IsInf(in.Seconds, 0) {
		return fmt.Errorf("an interval of %g s: want more than 0", in.Seconds)
	}
	if in.SpanShare < 0 || in.SpanShare > 1 || math.IsNaN(in.SpanShare) {
		return fmt.Errorf("a volume on %g of the disk: want 0 to 1", in.SpanShare)
	}
	if in.Share < 0 || in.Share > 1 || math.IsNaN(in.Share) {
		return fmt.Errorf("a weight for %g of the disk: want 0 to 1", in.Share)
	}
	seconds := []float64{in.WaitSeconds}
	for phase, s := range in.Phases {
		if !slices.Contains(account.WaitPhases, phase) {
			return fmt.Errorf("phase is %q; want one of %q", phase, account.WaitPhases)
		}
		seconds = append(seconds, s)
	}
	for _, c := range in.Culprits {
		for phase, s := range c.Seconds {
			if s > in.Phases[phase]+slack(in.WaitSeconds) {
				return fmt.Errorf("%s has %g s of %s, but the phase has %g s", c.Name, s, phase, in.Phases[phase])
			}
			seconds = append(seconds, s)
		}
	}
	for _, r := range []Requests{in.Own, in.Metadata, in.Others, in.Flushes} {
		seconds = append(seconds, r.QueuedSeconds, r.ServedSeconds, r.AloneSeconds)
	}
	for _, m := range []Moves{in.Moves, in.OwnMoves, in.Near, in.Journal} {
		seconds = append(seconds, m.AloneSeconds, m.Roots, m.Sectors, m.Products)
	}
	for _, s := range seconds {
		if !(s >= 0) || math.IsInf(s, 0) {
			return errors.New("a time is negative or no number")
		}
	}
	return nil
}

func slack(seconds float64) float64 { return 1e-9 + 1e-6*seconds }

// wait is the mean time of a call.
func (in Input) wait() float64 { return ratio(in.WaitSeconds, float64(in.Calls)) }

// phase is the mean time of a call in a phase.
func (in Input) phase(name string) float64 { return ratio(in.Phases[name], float64(in.Calls)) }

// others is the part of that which is other containers'.
func (in Input) others(name string) float64 {
	var sum float64
	for _, c := range in.Culprits {
		sum += c.Seconds[name]
	}
	return min(ratio(sum, float64(in.Calls)), in.phase(name))
}

// worst is the culprit that caused most of those that can have a limit.
func (in Input) worst() (worst Culprit, found bool) {
	at := slices.IndexFunc(in.Culprits, func(c Culprit) bool { return account.Adjustable(c.Cgroup) })
	if at < 0 {
		return Culprit{}, false
	}
	return in.Culprits[at], true
}

// quantile is the time that a share q of the calls does not exceed. Within a bucket
// the calls count as evenly spread.
func (in Input) quantile(q float64) float64 {
	var all, below float64
	for _, b := range in.Histogram {
		all += float64(b.Calls)
	}
	want := q * all
	for _, b := range in.Histogram {
		n := float64(b.Calls)
		if n > 0 && below+n >= want {
			// A bucket is an eighth of a power of two wide.
			lower := b.UpperSeconds * 8 / 9
			return lower + (b.UpperSeconds-lower)*max(want-below, 0)/n
		}
		below += n
	}
	return 0
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// syncs are the operations that a prediction is for.
var syncs = []string{"fsync", "fdatasync", "msync", "write"}

// Measured makes the input of one container on one file system from the waits of an
// interval. sameDisk are the other file systems on its disk. The caller adds what it knows
// of the disk.
func Measured(waiters []account.Waiter, cgroup, device string, seconds float64, sameDisk ...string) Input {
	in := Input{Cgroup: cgroup, Seconds: seconds, Phases: map[string]float64{}}
	calls := map[float64]uint64{}
	culprits := map[string]Culprit{}
	for _, w := range waiters {
		if !slices.Contains(syncs, w.Operation) {
			continue
		}
		if w.Device != device || w.Cgroup != cgroup {
			if w.Device == device || slices.Contains(sameDisk, w.Device) {
				in.OthersCalls += w.Calls
			}
			continue
		}
		in.Calls += w.Calls
		in.WaitSeconds += w.WaitSeconds
		for phase, s := range w.Phases {
			in.Phases[phase] += s
		}
		for _, b := range w.Histogram {
			calls[b.UpperSeconds] += b.Calls
		}
		for _, c := range w.Culprits {
			if c.Cgroup == "" || c.Cgroup == cgroup {
				continue
			}
			if culprits[c.Cgroup].Seconds == nil {
				culprits[c.Cgroup] = Culprit{Cgroup: c.Cgroup, Name: c.Name, Seconds: map[string]float64{}}
			}
			culprits[c.Cgroup].Seconds[c.Cause] += c.Seconds
		}
	}
	for _, upper := range slices.Sorted(maps.Keys(calls)) {
		in.Histogram = append(in.Histogram, account.WaitBucket{UpperSeconds: upper, Calls: calls[upper]})
	}
	in.Culprits = slices.SortedFunc(maps.Values(culprits), func(a, b Culprit) int {
		return cmp.Or(cmp.Compare(b.total(), a.total()), cmp.Compare(a.Cgroup, b.Cgroup))
	})
	return in
}
