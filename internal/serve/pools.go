package serve

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/daybook-project/daybook/volume"
)

// Pools is a Prometheus collector of pools and their volumes. It reads at each
// scrape, takes no lock, and never waits long for a disk that hangs: it then
// reports its last reading. It is safe for concurrent use.
type Pools struct {
	find     func() ([]string, error)
	read     func(dir string) (poolReading, error)
	patience time.Duration

	mutex sync.Mutex
	found reading[[]string]
	pools map[string]*reading[poolReading]
}

// poolPatience is how long a scrape waits for all pools.
const poolPatience = 2 * time.Second

// NewPools makes a collector of the pools in the directories that find returns.
func NewPools(find func() ([]string, error)) *Pools {
	return &Pools{find: find, read: readPool, patience: poolPatience, pools: map[string]*reading[poolReading]{}}
}

// reading is the last value of a source that may hang.
type reading[T any] struct {
	mutex sync.Mutex
	// done is closed at the end of the reading in progress; nil means none.
	done  chan struct{}
	value T
	read  time.Time // zero: never
	ok    bool      // the last one ended well
}

// start starts a reading unless one is in progress. It returns a channel that
// is closed at the end.
func (r *reading[T]) start(read func() (T, error)) <-chan struct{} {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.done != nil {
		return r.done
	}
	done := make(chan struct{})
	r.done = done
	go func() {
		value, err := read()
		r.mutex.Lock()
		defer r.mutex.Unlock()
		if r.ok = err == nil; r.ok {
			r.value, r.read = value, time.Now()
		}
		r.done = nil
		close(done)
	}()
	return done
}

// last returns the last value and its time; ok reports whether the last
// finished reading succeeded.
func (r *reading[T]) last() (value T, read time.Time, ok bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.value, r.read, r.ok
}

type poolReading struct {
	usage   volume.Usage
	volumes []volume.Overview
}

func readPool(dir string) (r poolReading, err error) {
	pool, err := volume.Open(context.Background(), dir, volume.PoolOptions{})
	if err != nil {
		return r, err
	}
	if r.usage, err = pool.Usage(); err != nil {
		return r, err
	}
	r.volumes, err = pool.Overview()
	return r, err
}

// Describe implements prometheus.Collector.
func (p *Pools) Describe(descs chan<- *prometheus.Desc) {
	descs <- poolUpDesc
	descs <- poolReadDesc
	for _, g := range poolGauges {
		descs <- g.desc
	}
	for _, v := range slices.Concat(volumeGauges, volumeCounters) {
		descs <- v.desc
	}
}

// Collect implements prometheus.Collector.
func (p *Pools) Collect(out chan<- prometheus.Metric) {
	began := time.Now()
	deadline := time.After(p.patience)
	wait := func(done <-chan struct{}) {
		select {
		case <-done:
		case <-deadline:
			deadline = closedTime
		}
	}
	wait(p.found.start(p.find))
	dirs, _, _ := p.found.last()
	var readings []*reading[poolReading]
	var running []<-chan struct{}
	p.mutex.Lock()
	for _, dir := range dirs {
		if p.pools[dir] == nil {
			p.pools[dir] = &reading[poolReading]{}
		}
		r := p.pools[dir]
		readings = append(readings, r)
		running = append(running, r.start(func() (poolReading, error) { return p.read(dir) }))
	}
	p.mutex.Unlock()
	for _, done := range running {
		wait(done)
	}
	seen := make(map[string]bool, len(dirs)) // different paths may have equal labels
	for i, dir := range dirs {
		if pool := label(dir); !seen[pool] {
			seen[pool] = true
			emitPool(out, pool, readings[i], began)
		}
	}
}

// closedTime is a deadline that has passed.
var closedTime = func() <-chan time.Time {
	passed := make(chan time.Time)
	close(passed)
	return passed
}()

// emitPool emits the last reading of a pool. The pool is up if it was read
// since began.
func emitPool(out chan<- prometheus.Metric, pool string, r *reading[poolReading], began time.Time) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	value, read, ok := r.last()
	gauge(poolUpDesc, truth(ok && !read.Before(began)), pool)
	if read.IsZero() {
		return
	}
	gauge(poolReadDesc, float64(read.UnixNano())/1e9, pool)
	for _, g := range poolGauges {
		if g.of == nil || g.of(value) {
			gauge(g.desc, g.value(value), pool)
		}
	}
	for _, v := range value.volumes {
		for _, g := range volumeGauges {
			if g.of == nil || g.of(v) {
				gauge(g.desc, g.value(v), pool, label(v.Name))
			}
		}
		for _, c := range volumeCounters {
			if c.of == nil || c.of(v) {
				counter(c.desc, c.value(v), pool, label(v.Name))
			}
		}
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
