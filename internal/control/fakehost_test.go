package control

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control/law"
)

var discard = slog.New(slog.DiscardHandler)

// fakeHost is a host in memory. With keyed, weights are set for the disk, as
// on kernels since 5.4.
type fakeHost struct {
	mu       sync.Mutex
	ids      map[string]uint64
	weights  map[string]Setting
	limits   map[string]uint64 // on writes it sets limits on reads
	reads    map[string]uint64 // limits on reads
	tunables map[string]string
	// scheduler is the disk's; only bfq has weights.
	scheduler string
	// gone means that the disk was removed, with its scheduler and tunables.
	gone bool
	// noWeightFile means that the weight files are gone, withoutIO that the parents of these
	// cgroups do not enable io.
	noWeightFile bool
	withoutIO    map[string]bool
	nextID       uint64
	log          []string // what was written
	// before is called before each write, without the mutex.
	before func(what string) error
}

func newFakeHost(cgroups ...string) *fakeHost {
	f := &fakeHost{ids: map[string]uint64{}, weights: map[string]Setting{}, limits: map[string]uint64{}, reads: map[string]uint64{},
		withoutIO: map[string]bool{}, tunables: map[string]string{"low_latency": "0"}, scheduler: "bfq", nextID: 100}
	for _, cgroup := range cgroups {
		f.create(cgroup)
	}
	return f
}

func (f *fakeHost) create(cgroup string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nextID++
	f.ids[cgroup] = f.nextID
	f.weights[cgroup] = Setting{Default: 100}
	delete(f.limits, cgroup)
	delete(f.reads, cgroup)
}

func (f *fakeHost) remove(cgroup string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.ids, cgroup)
	delete(f.weights, cgroup)
	delete(f.limits, cgroup)
	delete(f.reads, cgroup)
}

func (f *fakeHost) weight(cgroup string) Setting {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.weights[cgroup]
}

func (f *fakeHost) writes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

// write does a write if the cgroup exists.
func (f *fakeHost) write(cgroup, what string, do func()) error {
	if f.before != nil {
		if err := f.before(what); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.withoutIO[cgroup] {
		return fs.ErrNotExist
	}
	if _, ok := f.ids[cgroup]; !ok && cgroup != "" {
		return fmt.Errorf("%s: %w", cgroup, ErrVanished)
	}
	do()
	f.log = append(f.log, what)
	return nil
}

func (f *fakeHost) host() Host {
	return Host{Cgroups: fakeCgroups{f}, Weights: fakeWeights{f}, Limits: fakeLimits{f}, Tunables: fakeTunables{f}}
}

type fakeCgroups struct{ *fakeHost }

func (f fakeCgroups) List() (list []Cgroup, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path, id := range f.ids {
		list = append(list, Cgroup{Path: path, ID: id})
	}
	return list, nil
}

func (f fakeCgroups) ID(path string) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id, ok := f.ids[path]; ok {
		return id, nil
	}
	return 0, ErrVanished
}

type fakeWeights struct{ *fakeHost }

func (f fakeWeights) File() string     { return "fake.weight" }
func (f fakeWeights) Range() law.Range { return law.BFQRange }

func (f fakeWeights) Get(cgroup string) (Setting, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noWeightFile || f.withoutIO[cgroup] {
		return Setting{}, fs.ErrNotExist
	}
	if setting, ok := f.weights[cgroup]; ok {
		return setting, nil
	}
	return Setting{}, ErrVanished
}

func (f fakeWeights) Set(cgroup string, weight uint64) error {
	return f.write(cgroup, fmt.Sprintf("%s weight %d", cgroup, weight), func() {
		f.weights[cgroup] = Setting{Default: f.weights[cgroup].Default, Device: weight}
	})
}

func (f fakeWeights) Restore(cgroup string, s Setting) error {
	return f.write(cgroup, fmt.Sprintf("%s restore %d", cgroup, s.Effective()), func() { f.weights[cgroup] = s })
}

type fakeLimits struct{ *fakeHost }

func (f fakeLimits) Get(cgroup string) (Limits, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.ids[cgroup]; !ok {
		return Limits{}, ErrVanished
	}
	if f.withoutIO[cgroup] {
		return Limits{}, fs.ErrNotExist
	}
	return Limits{Read: f.reads[cgroup], Write: f.limits[cgroup]}, nil
}

func (f fakeLimits) Set(cgroup string, limits Limits) error {
	now, err := f.Get(cgroup)
	if err == nil && now.Read != limits.Read {
		err = f.write(cgroup, fmt.Sprintf("%s read limit %d", cgroup, limits.Read), func() { f.reads[cgroup] = limits.Read })
	}
	if err == nil && now.Write != limits.Write {
		err = f.write(cgroup, fmt.Sprintf("%s limit %d", cgroup, limits.Write), func() { f.limits[cgroup] = limits.Write })
	}
	return err
}

type fakeTunables struct{ *fakeHost }

func (f fakeTunables) Scheduler() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return "", fmt.Errorf("disk loop0: %w", blockdev.ErrGone)
	}
	return f.scheduler, nil
}

func (f fakeTunables) Get(name string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	value, ok := f.tunables[name]
	if !ok || f.gone {
		return "", fs.ErrNotExist
	}
	return value, nil
}
func (f fakeTunables) Set(name, value string) error {
	if f.gone {
		return fmt.Errorf("disk loop0: %w", blockdev.ErrGone)
	}
	return f.write("", name+" "+value, func() { f.tunables[name] = value })
}

// scriptedSource returns what steps return, then io.EOF or, with wait, nothing
// until its end.
type scriptedSource struct {
	steps []func() account.Sample
	wait  bool
}

func (s *scriptedSource) Next(ctx context.Context) (account.Sample, error) {
	if len(s.steps) == 0 {
		if s.wait {
			<-ctx.Done()
			return account.Sample{}, ctx.Err()
		}
		return account.Sample{}, io.EOF
	}
	step := s.steps[0]
	s.steps = s.steps[1:]
	return step(), nil
}

func (s *scriptedSource) Close() error { return nil }

// did makes the line of a container.
func did(cgroup string, charged, journal uint64) account.Container {
	return account.Container{Cgroup: cgroup, Name: cgroup, ChargedReadBytes: charged, JournalBytes: journal}
}

func sampleOf(containers ...account.Container) account.Sample {
	return account.Sample{Time: time.Unix(0, 0), IntervalSeconds: 5,
		Devices: []account.Device{{Device: "other"}, {Device: "loop0", Dev: "7:0", Containers: containers}}}
}

// fakeOptions are for the loop on a fake host; steps yield the samples.
func fakeOptions(t *testing.T, f *fakeHost, config string, steps ...func() account.Sample) Options {
	t.Helper()
	parsed, err := ReadConfig(strings.NewReader(config), "test")
	if err != nil {
		t.Fatal(err)
	}
	parsed.StateDir = t.TempDir()
	return Options{Disks: []Disk{{Device: "loop0", Dev: "7:0", Host: f.host()}}, Config: parsed, Log: discard,
		OpenSource: func([]string, time.Duration) (account.Source, error) { return &scriptedSource{steps: steps}, nil }}
}

func repeat(times int, step func() account.Sample) []func() account.Sample {
	return slices.Repeat([]func() account.Sample{step}, times)
}
