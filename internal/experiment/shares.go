package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/disksim"
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
	Disk       *GivenDisk
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

// Lab is where scenarios run.
type Lab struct {
	Tree *cgroup.Tree
	// Progress is told of every sample and of what is being prepared.
	Progress func(phase, what string, sample *account.Sample)
	Log      *slog.Logger
}

func (l Lab) progress(phase, what string, sample *account.Sample) {
	if l.Progress != nil {
		l.Progress(phase, what, sample)
	}
}

const (
	// readFileBytes is long enough that reading it is sequential, and short
	// enough to be written in a moment.
	readFileBytes = 256 << 20
	diskBytes     = 8 << 30
	// journalBytes is what mke2fs gives disks from 128 GiB on, less by half:
	// a transaction (a quarter of it at most) holds 5 s of the metadata, and
	// it does not fill within a phase, so that nobody is made to checkpoint
	// and all in-place writes are the kernel's own writeback.
	journalBytes = 512 << 20
)

// RunShares runs one phase of the scenario on a new disk: law is Uncontrolled
// or a law's name. Every scheduler setting is the same whatever the law.
func (l Lab) RunShares(ctx context.Context, scenario Scenario, law string) (phase Phase, err error) {
	l.progress(law, "preparing a disk", nil)
	// Made without the model's delays, which begin with the load.
	stage, err := build(ctx, l.Tree, scenario.stage())
	if err != nil {
		return Phase{}, err
	}
	defer func() { err = errors.Join(err, stage.close()) }()
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
	for _, actor := range scenario.Actors {
		children, cgroupPath, err := stage.prepare(ctx, actor, scenario.reading())
		loads[actor.Name] = children
		if err != nil {
			return Phase{}, err
		}
		paths[cgroupPath] = actor
	}
	if err := settle(stage.directory); err != nil {
		return Phase{}, err
	}
	if err := stage.disk.SetInstant(false); err != nil {
		return Phase{}, err
	}
	phase.Name = law
	step := scenario.Step(law)
	source, err := meter.Open(ctx, meter.Options{
		Devices: []string{stage.disk.Device.Name}, Interval: step, Tree: l.Tree, Naming: actorNames(paths),
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
	l.progress(law, "waiting for the first commit", nil)
	if err := sleep(ctx, warmUp); err != nil {
		return Phase{}, err
	}
	if _, err := source.Now(ctx); err != nil {
		return Phase{}, err
	}
	recorder := &recorder{
		Source: source,
		left:   int(math.Round(scenario.Seconds / step.Seconds())),
		steps:  int(scenario.Interval / step),
		each: func(sample account.Sample) {
			phase.Samples = append(phase.Samples, sample)
			l.progress(law, "", &sample)
		},
	}
	if law == Uncontrolled {
		err = drain(ctx, recorder)
	} else {
		err = l.control(ctx, law, scenario, stage, recorder, paths)
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
	l.progress(law, "cleaning up", nil)
	if err := stage.disk.SetInstant(true); err != nil {
		return Phase{}, err
	}
	if err := stopLoads(); err != nil {
		return Phase{}, err
	}
	phase.Done = totals
	phase.Device = Sum(phase.Samples)
	return phase, nil
}

// stage is what the scenario stands on.
func (s Scenario) stage() stageOptions {
	o := stageOptions{Given: s.Disk, Parameters: s.Parameters, SizeBytes: diskBytes, JournalBytes: journalBytes, Tunables: s.Tunables}
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

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// prepare makes an actor's cgroup and files, and its loads, waiting: a process
// that reads and, for metadata, another, so that neither waits for the other.
func (s *stage) prepare(ctx context.Context, actor Actor, r reading) (children []*workload.Child, cgroupPath string, err error) {
	cgroupPath, err = s.group.add(actor.Name, s.disk.Device, actor.Weight)
	if err != nil {
		return nil, "", err
	}
	file := s.path(actor.Name + ".data")
	if err := writeFile(ctx, file, r.fileBytes); err != nil {
		return nil, "", fmt.Errorf("cannot prepare what container %s reads: %w", actor.Name, err)
	}
	specs := []workload.Spec{{Read: []string{file}, ReadBytes: r.readBytes}}
	if actor.MkdirPerSecond > 0 {
		directory := s.path(actor.Name)
		if err := os.Mkdir(directory, 0o755); err != nil {
			return nil, "", err
		}
		specs = append(specs, workload.Spec{
			MkdirIn: directory, MkdirPerSecond: actor.MkdirPerSecond, MkdirThreads: actor.MkdirThreads, FsyncEvery: actor.FsyncEvery,
		})
	}
	for _, spec := range specs {
		child, err := workload.Start(spec, s.group.directory(cgroupPath))
		if err != nil {
			return children, cgroupPath, err
		}
		children = append(children, child)
	}
	return children, cgroupPath, nil
}

// control steers until the recorder ends.
func (l Lab) control(ctx context.Context, law string, scenario Scenario, s *stage, source account.Source, actors map[string]Actor) error {
	config := control.DefaultConfig()
	config.Interval, config.Law = scenario.Interval, law
	for cgroupPath, actor := range actors {
		config.Containers = append(config.Containers, control.Rule{Match: cgroupPath, Weight: actor.Weight})
	}
	return l.steer(ctx, s.disk.Device, config, func([]string, time.Duration) (account.Source, error) { return source, nil })
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
	whole.Devices = []account.Device{Sum(samples)}
	return whole
}

func (r *recorder) Close() error { return nil }

// settle writes everything out, so that a phase begins clean.
func settle(directory string) error {
	f, err := os.Open(directory)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("cannot write out %s: %w", directory, err)
	}
	return nil
}

// actorNames names the actors' cgroups; all else is a plain cgroup.
type actorNames map[string]Actor

func (a actorNames) Identify(cgroupPath string) (top, name, runtime string) {
	if _, ok := a[cgroupPath]; ok {
		return cgroupPath, path.Base(cgroupPath), ""
	}
	return cgroupPath, cgroupPath, ""
}

// Sum adds up the first device of the samples. Shares are of the sums; the
// weight is the last one.
func Sum(samples []account.Sample) account.Device {
	var sum account.Device
	lines := make(map[string]*account.Container)
	var order []string
	for _, sample := range samples {
		if len(sample.Devices) == 0 {
			continue
		}
		d := sample.Devices[0]
		sum.Device, sum.Dev = d.Device, d.Dev
		sum.DiskBytes += d.DiskBytes
		sum.JournalBytes += d.JournalBytes
		sum.JournalElsewhereBytes += d.JournalElsewhereBytes
		sum.MetadataBytes += d.MetadataBytes
		sum.UnaccountedBytes += d.UnaccountedBytes
		sum.CommitSeconds += d.CommitSeconds * float64(d.Transactions)
		sum.Transactions += d.Transactions
		sum.LostEvents += d.LostEvents
		for _, c := range d.Containers {
			line := lines[c.Cgroup]
			if line == nil {
				line = &account.Container{Cgroup: c.Cgroup, Name: c.Name, Runtime: c.Runtime}
				lines[c.Cgroup] = line
				order = append(order, c.Cgroup)
			}
			line.TargetShare, line.Weight = c.TargetShare, c.Weight
			line.ChargedReadBytes += c.ChargedReadBytes
			line.ChargedWriteBytes += c.ChargedWriteBytes
			line.JournalBytes += c.JournalBytes
			line.MetadataBytes += c.MetadataBytes
			line.UnchargedBytes += c.UnchargedBytes
			line.ReturnedBytes += c.ReturnedBytes
			line.ForcedCommits += c.ForcedCommits
		}
	}
	if sum.Transactions > 0 {
		sum.CommitSeconds /= float64(sum.Transactions)
	}
	var total uint64
	for _, line := range lines {
		total += line.Bytes()
	}
	for _, key := range order {
		if total > 0 {
			lines[key].Share = float64(lines[key].Bytes()) / float64(total)
		}
		sum.Containers = append(sum.Containers, *lines[key])
	}
	return sum
}
