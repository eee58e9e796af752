package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/meter"
	"github.com/daybook-project/daybook/internal/workload"
)

// Actor is one container of a scenario.
type Actor struct {
	Name string
	// Weight is the promised weight.
	Weight uint64
	// MkdirPerSecond directories are made, 0 for a container that only
	// reads; by MkdirThreads threads.
	MkdirPerSecond float64
	MkdirThreads   int
	// FsyncEvery, if > 0, is how often it syncs; paper 1 had to, once a
	// second (section 5).
	FsyncEvery time.Duration
}

// Scenario is an experiment on shares: containers that each read a file of
// their own from beginning to end, and some of which make metadata besides.
type Scenario struct {
	Name   string
	Actors []Actor
	// Disk is where it runs; nil: a simulated one with Parameters.
	Disk       *fixture.GivenDisk
	Parameters disksim.Parameters
	// Seconds is the length of each phase; Interval that of a sample and
	// of a correction.
	Seconds  float64
	Interval time.Duration
	// Tunables of BFQ, the same in all phases; nil: control.FairTunables.
	Tunables map[string]uint64
}

// Step is the time between two samples under a law, and so between two of its
// corrections.
func (s Scenario) Step(law string) time.Duration {
	return control.Config{Law: law, Interval: s.Interval}.Step()
}

// Uncontrolled is the phase in which nobody touches the weights.
const Uncontrolled = "uncontrolled"

// Phase is one run of a scenario.
type Phase struct {
	// Name is Uncontrolled or the name of the law in control.
	Name    string
	Samples []account.Sample
	// Done is what each actor's load counted itself, by name.
	Done map[string]workload.Result
	// Device is the disk's account summed over the samples, the lines
	// named by the actors.
	Device account.Device
}

const (
	// readFileBytes is long enough that reading it is sequential, and short
	// enough to be written in a moment.
	readFileBytes = 256 << 20
)

// Run runs one phase of the scenario on a new disk: law is Uncontrolled
// or a law's name. Every scheduler setting is the same whatever the law.
func (s Scenario) Run(ctx context.Context, l fixture.Lab, law string) (phase Phase, err error) {
	l.Announce(law, "preparing a disk", nil)
	// Made without the model's delays, which begin with the load.
	fs, err := fixture.MakeFileSystem(ctx, l.Tree, s.FileSystem())
	if err != nil {
		return Phase{}, err
	}
	defer func() { err = errors.Join(err, fs.Close()) }()
	loads := make(map[string][]*workload.Child)
	totals := make(map[string]workload.Result)
	stopLoads := func() error { // also a second time, when nothing is left
		var errs []error
		for name, children := range loads {
			for _, child := range children {
				done, err := child.Stop()
				totals[name] = totals[name].Plus(done)
				errs = append(errs, err)
			}
		}
		clear(loads)
		return errors.Join(errs...)
	}
	defer func() { err = errors.Join(err, stopLoads()) }()
	paths := make(map[string]Actor)
	for _, actor := range s.Actors {
		children, cgroupPath, err := prepare(ctx, fs, actor, s.reading())
		loads[actor.Name] = children
		if err != nil {
			return Phase{}, err
		}
		paths[cgroupPath] = actor
	}
	if err := fixture.WriteOut(fs.Directory); err != nil {
		return Phase{}, err
	}
	if err := fs.Disk.SetInstant(false); err != nil {
		return Phase{}, err
	}
	phase.Name = law
	step := s.Step(law)
	source, err := meter.Open(ctx, meter.Options{
		Devices: []string{fs.Disk.Device.Name}, Interval: step, Tree: l.Tree, Naming: fixture.Naming(slices.Collect(maps.Keys(paths))),
		Ideal: func(path, _ string) (uint64, bool) { return paths[path].Weight, paths[path].Weight > 0 },
		Log:   l.Log,
	})
	if err != nil {
		return Phase{}, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	for _, children := range loads {
		for _, child := range children {
			if err := child.Go(); err != nil {
				return Phase{}, err
			}
		}
	}
	// What preparing left behind is no part of the account, nor the time
	// before jbd2's first commit.
	l.Announce(law, "waiting for the first commit", nil)
	if err := fixture.Sleep(ctx, warmUp); err != nil {
		return Phase{}, err
	}
	if _, err := source.Now(ctx); err != nil {
		return Phase{}, err
	}
	recorder := &recorder{
		Source: source,
		left:   int(math.Round(s.Seconds / step.Seconds())),
		steps:  int(s.Interval / step),
		each: func(sample account.Sample) {
			phase.Samples = append(phase.Samples, sample)
			l.Announce(law, "", &sample)
		},
	}
	if law == Uncontrolled {
		err = drain(ctx, recorder)
	} else {
		err = controlDisk(ctx, l, law, s, fs, recorder, paths)
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
	l.Announce(law, "cleaning up", nil)
	if err := fs.Disk.SetInstant(true); err != nil {
		return Phase{}, err
	}
	if err := stopLoads(); err != nil {
		return Phase{}, err
	}
	phase.Done = totals
	phase.Device = account.Sum(phase.Samples)
	return phase, nil
}

// FileSystem is the file system that the scenario needs.
func (s Scenario) FileSystem() fixture.Options {
	o := fixture.Options{Given: s.Disk, Parameters: s.Parameters, SizeBytes: fixture.DiskBytes, JournalBytes: fixture.JournalBytes, Tunables: s.Tunables}
	if s.Disk != nil && s.Disk.JournalBytes != 0 {
		o.JournalBytes = s.Disk.JournalBytes
	}
	return o
}

// reading says what each container reads.
type reading struct {
	fileBytes int64
	readBytes int // 0: workload's own
}

func (s Scenario) reading() reading {
	r := reading{fileBytes: readFileBytes}
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

// prepare makes an actor's cgroup and files, and its loads, waiting: a process
// that reads and, for metadata, another, so that neither waits for the other.
func prepare(ctx context.Context, s *fixture.FileSystem, actor Actor, r reading) (children []*workload.Child, cgroupPath string, err error) {
	cgroupPath, err = s.Group.Add(actor.Name, s.Disk.Device, actor.Weight)
	if err != nil {
		return nil, "", err
	}
	file := s.Path(actor.Name + ".data")
	if err := fixture.WriteFile(ctx, file, r.fileBytes); err != nil {
		return nil, "", fmt.Errorf("cannot prepare what container %s reads: %w", actor.Name, err)
	}
	specs := []workload.Spec{{Read: []string{file}, ReadBytes: r.readBytes}}
	if actor.MkdirPerSecond > 0 {
		directory := s.Path(actor.Name)
		if err := os.Mkdir(directory, 0o755); err != nil {
			return nil, "", err
		}
		specs = append(specs, workload.Spec{
			MkdirIn: directory, MkdirPerSecond: actor.MkdirPerSecond, MkdirThreads: actor.MkdirThreads, FsyncEvery: actor.FsyncEvery,
		})
	}
	for _, spec := range specs {
		child, err := workload.Start(spec, s.Group.Directory(cgroupPath))
		if err != nil {
			return children, cgroupPath, err
		}
		children = append(children, child)
	}
	return children, cgroupPath, nil
}

// controlDisk lets the law correct the weights until the recorder ends.
func controlDisk(ctx context.Context, l fixture.Lab, law string, scenario Scenario, s *fixture.FileSystem, source account.Source, actors map[string]Actor) error {
	config := control.DefaultConfig()
	config.Interval, config.Law = scenario.Interval, law
	for cgroupPath, actor := range actors {
		config.Containers = append(config.Containers, control.Rule{Match: cgroupPath, Weight: actor.Weight})
	}
	return l.Control(ctx, s.Disk.Device, config, func([]string, time.Duration) (account.Source, error) { return source, nil })
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

// recorder passes samples on, puts them together to whole intervals, and ends
// after a number of them. Its Close leaves the meter open: the phase closes it.
type recorder struct {
	account.Source
	left    int // steps to come
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

// together makes one sample of several that follow each other.
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
