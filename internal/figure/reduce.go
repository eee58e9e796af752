package figure

import (
	"math"
	"slices"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/safetext"
)

// nearTarget is the largest difference from its target at which a share still
// counts as held, as a ratio of the disk.
const nearTarget = 0.05

// Bounds of an interval in seconds; outside them a rate has no meaning and the
// sample is skipped.
const (
	leastInterval    = 1e-3
	greatestInterval = 1e7
)

// usage is a number of bytes of each kind.
type usage struct {
	charged, journal, metadata, uncharged, returned uint64
}

func (u *usage) add(c account.Container) {
	u.charged += c.Charged()
	u.journal += c.JournalBytes
	u.metadata += c.MetadataBytes
	u.uncharged += c.UnchargedBytes
	u.returned += c.ReturnedBytes
}

// bytes is the total. Returned bytes are no part of the charged ones.
func (u usage) bytes() uint64 { return u.charged + u.journal + u.metadata + u.uncharged }

// parts are the kinds in the order of kindStyles.
func (u usage) parts() [4]uint64 {
	return [4]uint64{u.charged, u.journal, u.metadata, u.uncharged}
}

// experiment is the data that the panels and the report show.
type experiment struct {
	device string
	names  []string
	phases []phaseData
}

// phaseData is one phase; its slices by interval have equal lengths.
type phaseData struct {
	name string
	// begin and end are the seconds since the start of the phase.
	begin, end []float64
	// present is false for an interval without the device.
	present []bool
	// total is the bytes of the shown containers in each interval.
	total   []uint64
	tracks  []track
	seconds float64 // of the intervals that are present

	others        usage // of the containers that are not shown
	disk          uint64
	elsewhere     uint64
	unaccounted   int64
	transactions  uint64
	lost          uint64
	estimators    []string
	presentNumber int
}

// track is one container in one phase.
type track struct {
	rates   []float64 // bytes per second
	bytes   []uint64
	weights []uint64 // 0: none known
	sum     usage
	share   float64 // mean by bytes, 0..1
	target  float64 // 0: none known
}

func (s Shares) reduce() experiment {
	e := experiment{device: safetext.Line(s.Device)}
	names := make([]string, len(s.Containers))
	targets := make([]float64, len(s.Containers))
	for _, phase := range s.Phases {
		d := s.reducePhase(phase, names)
		for i, t := range d.tracks {
			if t.target > 0 {
				targets[i] = t.target
			}
		}
		e.phases = append(e.phases, d)
	}
	for i, c := range s.Containers {
		name := firstOf(c.Name, names[i], c.Cgroup)
		e.names = append(e.names, safetext.Line(name))
		// A phase without a known target uses the targets of the other phases.
		for p := range e.phases {
			t := &e.phases[p].tracks[i]
			switch {
			case c.Target > 0:
				t.target = c.Target
			case t.target == 0:
				t.target = targets[i]
			}
		}
	}
	return e
}

// reducePhase reads the samples of a phase; names receives the last name of
// each container.
func (s Shares) reducePhase(phase Phase, names []string) phaseData {
	d := phaseData{name: safetext.Line(phase.Name), tracks: make([]track, len(s.Containers))}
	index := make(map[string]int, len(s.Containers))
	for i, c := range s.Containers {
		index[c.Cgroup] = i
	}
	var now float64
	for _, sample := range phase.Samples {
		seconds := sample.IntervalSeconds
		// The negation also catches NaN.
		if !(seconds >= leastInterval && seconds <= greatestInterval) {
			continue
		}
		device, present := deviceOf(sample, s.Device)
		d.begin = append(d.begin, now)
		now += seconds
		d.end = append(d.end, now)
		d.present = append(d.present, present)
		if present {
			d.seconds += seconds
			d.presentNumber++
			d.addDevice(device, sample.Estimator)
		}
		parts := make([]usage, len(s.Containers))
		weights := make([]uint64, len(s.Containers))
		for _, c := range device.Containers {
			i, shown := index[c.Cgroup]
			if !shown {
				d.others.add(c)
				continue
			}
			parts[i].add(c)
			d.tracks[i].sum.add(c)
			weights[i] = c.Weight
			if c.Name != "" {
				names[i] = c.Name
			}
			if c.TargetShare > 0 && c.TargetShare <= 1 {
				d.tracks[i].target = c.TargetShare
			}
		}
		var total uint64
		for i := range d.tracks {
			t := &d.tracks[i]
			bytes := parts[i].bytes()
			total += bytes
			t.bytes = append(t.bytes, bytes)
			t.rates = append(t.rates, float64(bytes)/seconds)
			t.weights = append(t.weights, weights[i])
		}
		d.total = append(d.total, total)
	}
	if sum := d.bytes(); sum > 0 {
		for i := range d.tracks {
			d.tracks[i].share = float64(d.tracks[i].sum.bytes()) / float64(sum)
		}
	}
	return d
}

func (d *phaseData) addDevice(device account.Device, estimator string) {
	d.disk += device.DiskBytes
	d.elsewhere += device.JournalElsewhereBytes
	d.unaccounted += device.UnaccountedBytes
	d.transactions += device.Transactions
	d.lost += device.LostEvents
	if estimator != "" && !slices.Contains(d.estimators, estimator) {
		d.estimators = append(d.estimators, estimator)
	}
}

func deviceOf(s account.Sample, name string) (account.Device, bool) {
	for _, d := range s.Devices {
		if d.Device == name {
			return d, true
		}
	}
	return account.Device{}, false
}

// sum is the usage of all shown containers together.
func (d phaseData) sum() usage {
	var all usage
	for _, t := range d.tracks {
		all.charged += t.sum.charged
		all.journal += t.sum.journal
		all.metadata += t.sum.metadata
		all.uncharged += t.sum.uncharged
		all.returned += t.sum.returned
	}
	return all
}

func (d phaseData) bytes() uint64 { return d.sum().bytes() }

// length is the time of the whole phase in seconds, gaps included.
func (d phaseData) length() float64 {
	if len(d.end) == 0 {
		return 0
	}
	return d.end[len(d.end)-1]
}

// sharesOf are the shares of a container, 0..1, in the intervals in which any
// shown container did I/O. Without I/O there is no share.
func (d phaseData) sharesOf(i int) []float64 {
	var shares []float64
	for k, total := range d.total {
		if total > 0 {
			shares = append(shares, float64(d.tracks[i].bytes[k])/float64(total))
		}
	}
	return shares
}

// held counts the intervals with I/O in which each container with a target was
// near it; ok is false without a target or without I/O.
func (d phaseData) held() (near, intervals int, ok bool) {
	for k, total := range d.total {
		if total == 0 {
			continue
		}
		intervals++
		inside := true
		for _, t := range d.tracks {
			if t.target > 0 {
				ok = true
				share := float64(t.bytes[k]) / float64(total)
				inside = inside && math.Abs(share-t.target) <= nearTarget+1e-9
			}
		}
		if inside {
			near++
		}
	}
	return near, intervals, ok
}

func (e experiment) hasWeights() bool {
	for _, d := range e.phases {
		for _, t := range d.tracks {
			for _, w := range t.weights {
				if w > 0 {
					return true
				}
			}
		}
	}
	return false
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
