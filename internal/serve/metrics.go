package serve

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/daybook-project/daybook/internal/account"
)

const (
	// DefaultMaxContainers limits the containers with series of their own; each
	// has ten series, or twelve with a journal in memory. Further ones are
	// summed in one line per disk, so that the totals stay correct.
	DefaultMaxContainers = 4000
	// expireSeconds is how long the series of a container stay after its last
	// sample. It is longer than a scrape interval, so that the last bytes are
	// scraped.
	expireSeconds = 300
	// mergedName is the cgroup and container in the line of the rest. A cgroup
	// path starts with a slash, so it cannot be one.
	mergedName = "(others)"
)

// containerKey identifies a series.
type containerKey struct{ device, cgroup, container, runtime string }

type containerSeries struct {
	sums [7]uint64
	// memory has the sums of containerMemoryCounters.
	memory [2]uint64
	last   account.Container
	// seen is the meter's running time at its last sample, in seconds.
	seen float64
	// current reports whether the last sample has it.
	current bool
}

type deviceSeries struct {
	sums          [5]uint64
	transactions  uint64
	commitSeconds float64
	unaccounted   int64
	control       *account.Control // nil: the disk is not controlled
	// memory has the sums of its file systems' journals in memory, by name.
	memory  map[string]*[3]uint64
	seen    float64
	current bool
}

// Metrics is a Prometheus collector of the sums of the samples. It is safe for
// concurrent use.
type Metrics struct {
	max int

	mutex      sync.Mutex
	containers map[containerKey]*containerSeries
	devices    map[string]*deviceSeries
	waits      waits
	// running is the sum of the intervals in seconds. Expiry uses it because
	// the wall clock may jump.
	running float64
	samples uint64
	merged  uint64
	// unrecorded samples could not be appended to the recording.
	unrecorded uint64
	sums       [1]uint64 // of sampleCounters
	skipped    uint64    // cgroups, in the last sample
	lastTime   time.Time
	interval   float64
	// expected is how long the next sample takes, as far as is known, in seconds.
	expected float64
	// none: no sample comes.
	none bool
	// missing is how many disks to control the host lacks; nil: disks are not awaited.
	missing *int
	// observed is when the last sample came, or since when the first one is awaited, by the
	// monotonic clock.
	observed time.Time
}

// NewMetrics makes an empty collector. At most maxContainers at a time get
// series of their own; the usual value is [DefaultMaxContainers].
func NewMetrics(maxContainers int) *Metrics {
	return &Metrics{
		max:        maxContainers,
		containers: map[containerKey]*containerSeries{},
		devices:    map[string]*deviceSeries{},
		waits:      newWaits(),
		observed:   time.Now(),
	}
}

// Expect says how long the next samples take, for the health check. It ends [Metrics.ExpectNone]:
// the health check then waits for the next sample from this call on.
func (m *Metrics) Expect(interval time.Duration) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.none {
		m.none, m.observed = false, time.Now()
	}
	m.expected = interval.Seconds()
}

// ExpectNone says that no samples will come until [Metrics.Expect]: the health check waits for none.
func (m *Metrics) ExpectNone() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.none = true
}

func (m *Metrics) expectsNone() bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.none
}

// SetMissingDisks says how many disks of the configuration of control the host lacks.
func (m *Metrics) SetMissingDisks(disks int) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.missing = &disks
}

// RecordingFailed counts a sample that could not be recorded.
func (m *Metrics) RecordingFailed() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.unrecorded++
}

// Observe adds a sample.
func (m *Metrics) Observe(s account.Sample) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.samples++
	m.running += s.IntervalSeconds
	m.interval, m.lastTime, m.observed = s.IntervalSeconds, s.Time, time.Now()
	for _, c := range m.containers {
		c.current = false
	}
	for _, d := range m.devices {
		d.current = false
	}
	m.skipped = s.CgroupsSkipped
	for i, c := range sampleCounters {
		m.sums[i] += c.value(s)
	}
	for _, d := range s.Devices {
		m.addDevice(d)
		for _, c := range d.Containers {
			m.addContainer(d.Device, c)
		}
	}
	m.waits.observe(s, m.running, m.max)
	for key, c := range m.containers {
		if m.running-c.seen > expireSeconds {
			delete(m.containers, key)
		}
	}
	for key, d := range m.devices {
		if m.running-d.seen > expireSeconds {
			delete(m.devices, key)
		}
	}
}

func (m *Metrics) addDevice(d account.Device) {
	name := label(d.Device)
	series := m.devices[name]
	if series == nil {
		series = &deviceSeries{memory: map[string]*[3]uint64{}}
		m.devices[name] = series
	}
	for i, counter := range deviceCounters {
		series.sums[i] += counter.value(d)
	}
	for _, j := range d.MemoryJournals {
		sums := series.memory[label(j.Filesystem)]
		if sums == nil {
			sums = new([3]uint64)
			series.memory[label(j.Filesystem)] = sums
		}
		for i, counter := range memoryCounters {
			sums[i] += counter.value(j)
		}
	}
	series.transactions += d.Transactions
	series.commitSeconds += d.CommitSeconds * float64(d.Transactions)
	series.unaccounted, series.control = d.UnaccountedBytes, d.Control
	series.seen, series.current = m.running, true
}

func (m *Metrics) addContainer(device string, c account.Container) {
	key := containerKey{label(device), label(c.Cgroup), label(c.Name), label(c.Runtime)}
	series := m.containers[key]
	if series == nil && len(m.containers) >= m.max {
		m.merged++
		key.cgroup, key.container, key.runtime = mergedName, mergedName, ""
		series = m.containers[key]
	}
	if series == nil {
		series = &containerSeries{}
		m.containers[key] = series
	}
	for i, counter := range containerCounters {
		series.sums[i] += counter.value(c)
	}
	for i, counter := range containerMemoryCounters {
		series.memory[i] += counter.value(c)
	}
	if series.current {
		// Two entries with the same name, such as the rest: shares are added; a
		// weight of several has no meaning.
		c.Share += series.last.Share
		c.TargetShare += series.last.TargetShare
		c.Weight = 0
	}
	series.last, series.seen, series.current = c, m.running, true
}

// label makes a text valid UTF-8, as label values must be.
func label(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// age is the time since the last sample, and the length of its interval, or of the next one
// if that is longer; 0 if neither is known.
func (m *Metrics) age() (age time.Duration, interval float64) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return time.Since(m.observed), max(m.interval, m.expected)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for key, series := range m.containers {
		labels := []string{key.device, key.cgroup, key.container, key.runtime}
		for i, c := range containerCounters {
			counter(c.desc, float64(series.sums[i]), labels...)
		}
		if series.memory != [2]uint64{} {
			for i, c := range containerMemoryCounters {
				counter(c.desc, float64(series.memory[i]), labels...)
			}
		}
		if series.current {
			for _, g := range containerGauges {
				gauge(g.desc, g.value(series.last), labels...)
			}
		}
	}
	for device, series := range m.devices {
		for i, c := range deviceCounters {
			counter(c.desc, float64(series.sums[i]), device)
		}
		for filesystem, sums := range series.memory {
			for i, c := range memoryCounters {
				counter(c.desc, float64(sums[i]), device, filesystem)
			}
		}
		out <- prometheus.MustNewConstSummary(commitDesc, series.transactions, series.commitSeconds, nil, device)
		if series.current {
			gauge(unaccountedDesc, float64(series.unaccounted), device)
			if c := series.control; c != nil {
				gauge(weightsIgnoredDesc, truth(c.WeightsIgnored), device)
				gauge(limitsHoldDesc, truth(c.Actuator == account.ActuatorLimits), device)
			}
		}
	}
	for i, c := range sampleCounters {
		counter(c.desc, float64(m.sums[i]))
	}
	m.waits.collect(out)
	counter(samplesDesc, float64(m.samples))
	counter(mergedDesc, float64(m.merged))
	counter(unrecordedDesc, float64(m.unrecorded))
	gauge(seriesDesc, float64(len(m.containers)))
	gauge(skippedDesc, float64(m.skipped))
	if m.missing != nil {
		gauge(missingDisksDesc, float64(*m.missing))
	}
	switch {
	case m.samples > 0:
		gauge(lastDesc, float64(m.lastTime.UnixNano())/1e9)
		gauge(lengthDesc, m.interval)
	case !m.none: // since then the first one is missing
		gauge(lastDesc, float64(m.observed.UnixNano())/1e9)
		gauge(lengthDesc, m.expected)
	}
}
