package scenario

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/meter"
	"github.com/daybook-project/daybook/internal/workload"
)

// Actor is one container of a scenario.
type Actor struct {
	Name string
	// Weight is the configured weight.
	Weight uint64
	// MkdirPerSecond directories are made by MkdirThreads threads; 0 for a
	// container that only reads.
	MkdirPerSecond float64
	MkdirThreads   int
	// ChangesPerSecond are rounds of changes to metadata (workload.Spec).
	ChangesPerSecond float64 `json:",omitempty"`
	// FsyncEvery, if > 0, is the time between its syncs. In paper 1 it was a second
	// (section 5).
	FsyncEvery time.Duration
	// Stream is the load on its file; nil means that it reads, one request at a
	// time.
	Stream *Stream `json:",omitempty"`
}

// Scenario is an experiment on shares: containers that each read or write their own
// file sequentially. Some of them also make metadata.
type Scenario struct {
	Name   string
	Actors []Actor
	// Disk is the disk to run on; nil means a simulated one with Parameters.
	Disk       *fixture.GivenDisk
	Parameters disksim.Parameters
	// WarmUp is the time before each phase that does not count; 0 means jbd2's
	// commit interval.
	WarmUp time.Duration `json:",omitempty"`
	// Seconds is the length of each phase, and Interval that of a sample.
	Seconds  float64
	Interval time.Duration
	// Scheduler of a simulated disk; "": BFQ.
	Scheduler string `json:",omitempty"`
	// Actuator of control.Config; "": its default.
	Actuator string `json:",omitempty"`
	// Tunables of BFQ, the same in all phases; nil: control.FairTunables.
	Tunables map[string]uint64
	// AutoTunables lets control change them in its phases, as control.Config has it.
	AutoTunables bool `json:",omitempty"`
}

// Step is the time between two samples under a law, and so between two of its
// corrections.
func (s Scenario) Step(law string) time.Duration {
	return control.Config{Law: law, Interval: s.Interval}.Step()
}

// Uncontrolled is the phase in which the weights are not changed.
const Uncontrolled = "uncontrolled"

// Phase is one run of a scenario.
type Phase struct {
	// Name is Uncontrolled or the name of the law in control.
	Name    string
	Samples []account.Sample
	// Processors is the work of the host's processors meanwhile.
	Processors fixture.Processors
	// Done is each actor's own count of its work, by name.
	Done map[string]workload.Result
	// Device is the disk's account summed over the samples, the lines
	// named by the actors.
	Device account.Device
}

const (
	// FileBytes is the length of an actor's file on a simulated disk: long enough
	// for sequential reads, and short enough to be written quickly.
	FileBytes = 256 << 20
)

// Part is one phase of a run.
type Part struct {
	// Law is Uncontrolled or a law's name.
	Law     string  `json:"law"`
	Seconds float64 `json:"seconds"`
}

// Run runs one phase of the scenario on a new disk: law is Uncontrolled or a law's
// name. The scheduler settings do not depend on the law.
func (s Scenario) Run(ctx context.Context, l fixture.Lab, law string) (Phase, error) {
	phases, err := s.RunParts(ctx, l, []Part{{Law: law, Seconds: s.Seconds}})
	if err != nil {
		return Phase{}, err
	}
	return phases[0], nil
}

// RunParts runs phases one after the other on one new disk, while the loads
// continue. The loads' own counts are in the last phase.
func (s Scenario) RunParts(ctx context.Context, l fixture.Lab, parts []Part) (phases []Phase, err error) {
	l.Say("preparing a disk")
	// It is made without the model's delays, which start with the load.
	fs, err := fixture.MakeFileSystem(ctx, l.Tree, s.FileSystem())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fs.Close()) }()
	loads := newLoads()
	defer func() {
		// At once, and not at the rate of a disk with a full queue.
		err = errors.Join(err, fs.Disk.SetInstant(true), loads.stop())
	}()
	r := running{Scenario: s, lab: l, fs: fs, actors: make(map[string]Actor)}
	for _, actor := range s.Actors {
		cgroupPath, err := loads.prepare(ctx, fs, s, actor)
		if err != nil {
			return nil, err
		}
		r.actors[cgroupPath] = actor
	}
	if err := fixture.WriteOut(fs.Directory); err != nil {
		return nil, err
	}
	if err := fs.Disk.SetInstant(false); err != nil {
		return nil, err
	}
	if err := r.openMeter(ctx, parts); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.source.Close()) }()
	if err := loads.begin(); err != nil {
		return nil, err
	}
	for _, part := range parts {
		phase, err := r.phase(ctx, part)
		if err != nil {
			return nil, err
		}
		phases = append(phases, phase)
	}
	l.Say("cleaning up")
	if err := fs.Disk.SetInstant(true); err != nil {
		return nil, err
	}
	if err := loads.stop(); err != nil {
		return nil, err
	}
	phases[len(phases)-1].Done = loads.totals
	return phases, nil
}

// running is a scenario whose loads run.
type running struct {
	Scenario
	lab    fixture.Lab
	fs     *fixture.FileSystem
	actors map[string]Actor // by cgroup
	source *meter.Meter
	step   time.Duration
	// promised returns the weights that a controller reports; nil if there is none.
	promised atomic.Pointer[control.Ideals]
}

// openMeter opens one meter for all parts: a meter that starts later does not know which
// cgroup dirtied the metadata that is not written yet.
func (r *running) openMeter(ctx context.Context, parts []Part) (err error) {
	r.step = r.Interval
	for _, part := range parts {
		r.step = min(r.step, r.Step(part.Law))
	}
	r.source, err = meter.Open(ctx, meter.Options{
		Devices: []string{r.fs.Disk.Device.Name}, Interval: r.step, Tree: r.lab.Tree, Naming: fixture.Naming(slices.Collect(maps.Keys(r.actors))),
		Ideal:    func(path, _ string) (uint64, bool) { return r.actors[path].Weight, r.actors[path].Weight > 0 },
		Promises: r.promises,
		Log:      r.lab.Log,
	})
	return err
}

func (r *running) promises(string) (meter.Promises, bool) {
	ideals := r.promised.Load()
	if ideals == nil {
		return meter.Promises{}, false
	}
	return meter.Promises(*ideals), true
}

// phase runs one part.
func (r *running) phase(ctx context.Context, part Part) (phase Phase, err error) {
	phase.Name = part.Law
	// These do not count: the writes that the preparation left, the time before
	// jbd2's first commit, and the effects of an earlier controller.
	r.lab.Announce(part.Law, "waiting for a commit", nil)
	if err := fixture.Sleep(ctx, cmp.Or(r.WarmUp, warmUp)); err != nil {
		return Phase{}, err
	}
	if _, err := r.source.Now(ctx); err != nil {
		return Phase{}, err
	}
	before, err := fixture.ReadProcessors()
	if err != nil {
		return Phase{}, err
	}
	recorder := &recorder{
		Source: r.source,
		left:   int(math.Round(part.Seconds / r.step.Seconds())),
		steps:  int(r.Interval / r.step),
		each: func(sample account.Sample) {
			phase.Samples = append(phase.Samples, sample)
			r.lab.Announce(part.Law, "", &sample)
		},
	}
	if part.Law == Uncontrolled {
		err = drain(ctx, recorder)
	} else {
		err = r.control(ctx, part.Law, recorder)
	}
	if err != nil {
		return Phase{}, err
	}
	if err := ctx.Err(); err != nil {
		return Phase{}, err
	}
	if len(phase.Samples) == 0 {
		return Phase{}, errors.New("the experiment was too short for one sample")
	}
	after, err := fixture.ReadProcessors()
	if err != nil {
		return Phase{}, err
	}
	phase.Processors = after.Since(before)
	phase.Device = account.Sum(phase.Samples)
	return phase, nil
}

// FileSystem is the file system that the scenario needs.
func (s Scenario) FileSystem() fixture.Options {
	o := fixture.Options{Given: s.Disk, Parameters: s.Parameters, SizeBytes: fixture.DiskBytes, JournalBytes: fixture.JournalBytes, Scheduler: s.Scheduler, Tunables: s.Tunables}
	if s.Disk != nil && s.Disk.JournalBytes != 0 {
		o.JournalBytes = s.Disk.JournalBytes
	}
	return o
}

// unweighted: the disk's scheduler knows no weights.
func (s Scenario) unweighted() bool { return s.Scheduler != "" && s.Scheduler != blockdev.BFQ }

// reading returns the read load of each container.
type reading struct {
	fileBytes int64
	readBytes int // 0: workload's own
}

func (s Scenario) reading() reading {
	r := reading{fileBytes: FileBytes}
	if s.Disk != nil {
		r.readBytes = s.Disk.ReadBytes
		if s.Disk.ReadFileBytes != 0 {
			r.fileBytes = s.Disk.ReadFileBytes
		}
	}
	return r
}

// warmUp is jbd2's commit interval (JBD2_DEFAULT_MAX_COMMIT_AGE, include/linux/jbd2.h).
const warmUp = 5 * time.Second

// control lets the law correct the weights or limits until the recorder ends.
func (r *running) control(ctx context.Context, law string, source account.Source) error {
	config := control.DefaultConfig()
	config.Interval, config.Law, config.AutoTunables = r.Interval, law, r.AutoTunables
	if r.Actuator != "" {
		config.Actuator = r.Actuator
	}
	for cgroupPath, actor := range r.actors {
		config.Containers = append(config.Containers, control.Rule{Match: cgroupPath, Weight: actor.Weight})
	}
	defer r.promised.Store(nil)
	return r.lab.Control(ctx, r.fs.Disk.Device, config,
		func(_ string, ideals control.Ideals) { r.promised.Store(&ideals) },
		func([]string, time.Duration) (account.Source, error) { return source, nil })
}

func drain(ctx context.Context, source account.Source) error {
	for {
		if _, err := source.Next(ctx); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// recorder passes samples on, combines them to whole intervals, and ends after a
// number of them. Its Close leaves the meter open: the phase closes it.
type recorder struct {
	account.Source
	left    int // remaining steps of an interval
	steps   int // of one interval
	each    func(account.Sample)
	pending []account.Sample
}

func (r *recorder) Next(ctx context.Context) (account.Sample, error) {
	if r.left <= 0 {
		return account.Sample{}, io.EOF
	}
	r.left--
	sample, err := r.Source.Next(ctx)
	if err != nil {
		return sample, err
	}
	if r.pending = append(r.pending, sample); len(r.pending) == r.steps {
		r.each(together(r.pending))
		r.pending = nil
	}
	return sample, nil
}

// together combines several consecutive samples into one.
func together(samples []account.Sample) account.Sample {
	whole := samples[len(samples)-1]
	whole.IntervalSeconds = 0
	for _, sample := range samples {
		whole.IntervalSeconds += sample.IntervalSeconds
	}
	whole.Devices = []account.Device{account.Sum(samples)}
	return whole
}

func (r *recorder) Close() error { return nil }
