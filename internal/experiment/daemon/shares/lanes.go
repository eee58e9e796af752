package shares

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/internal/program"
)

// Options select what bench-shares measures.
type Options struct {
	Settings
	Repetitions int
	// Only are the names of the scenarios to measure; none means all. The runs of
	// the others are kept from Before.
	Only []string
	// Before is a result to continue; with Anew, the runs of Only are measured again.
	Before *Result
	Anew   bool
	// Version of the program that measures.
	Version string
	// Recordings is the directory for those of bad runs; "": none are kept.
	Recordings string
	// Save keeps the result, after each run.
	Save func(Result) error
	// Say receives a line for each run that ended.
	Say func(line string)
}

// Full is the benchmark, Quick a short run that tests it.
var (
	Full = Options{
		Settings:    Settings{UncontrolledSeconds: 15, ControlledSeconds: 75, FairSeconds: 30, IntervalSeconds: 5, WarmUpSeconds: 5},
		Repetitions: 20,
	}
	Quick = Options{
		Settings:    Settings{UncontrolledSeconds: 2, ControlledSeconds: 5, FairSeconds: 2, IntervalSeconds: 1, WarmUpSeconds: 1},
		Repetitions: 1,
	}
)

const (
	// fairRepetitions are enough for a median: the fair disk varies little.
	fairRepetitions = 3
	// aloneRepetitions is how often the scenario aloneName runs alone, to see
	// whether lanes disturb each other.
	aloneRepetitions = 3
)

// aloneConditions are those in which shares vary least.
func aloneConditions() Conditions { return base.fair() }

// job is a run that is not measured yet.
type job struct {
	kind       Kind
	scenario   Scenario
	repetition int
}

// laneBytes is the memory that a lane's disk needs at most: the files of four
// containers, the journal, and metadata.
const laneBytes = 4*scenario.FileBytes + fixture.JournalBytes + 400<<20

// checkMemory returns an error if the host has not enough memory for the lanes.
func checkMemory(lanes int) error {
	available, known := kernel.AvailableMemory()
	if wanted := int64(lanes) * laneBytes; known && wanted > available {
		return fmt.Errorf("%d lanes want %d MiB of memory for their disks, and %d MiB are left: choose fewer by --lanes", lanes, wanted>>20, available>>20)
	}
	return nil
}

// jobs lists the runs that are missing or failed: first those alone, then one
// repetition after the other, so that a change of the host affects all scenarios.
func (r Result) jobs() []job {
	done := func(j job) bool {
		return slices.ContainsFunc(r.Runs, func(run Run) bool {
			return run.Kind == j.kind && run.Scenario == j.scenario.Name && run.Repetition == j.repetition && run.Failed == ""
		})
	}
	var jobs []job
	add := func(j job) {
		if !done(j) {
			jobs = append(jobs, j)
		}
	}
	if r.Settings.Lanes > 1 {
		for repetition := range min(aloneRepetitions, r.Repetitions) {
			add(job{Alone, r.Settings.scenario(aloneConditions()), repetition + 1})
		}
	}
	for repetition := 1; repetition <= r.Repetitions; repetition++ {
		for _, s := range r.Plan {
			add(job{Judged, s, repetition})
		}
		if repetition > fairRepetitions {
			continue
		}
		var fairs []string
		for _, s := range r.Plan {
			name := s.fair().name()
			measured := slices.ContainsFunc(r.Plan, func(other Scenario) bool { return other.Name == name })
			if !measured && !slices.Contains(fairs, name) {
				fairs = append(fairs, name)
				add(job{FairDisk, r.Settings.scenario(s.fair()), repetition})
			}
		}
	}
	return jobs
}

// parts returns the parts of the job's run. The first phase alternates, so that the
// remains of the loads, such as metadata that is not written yet, affect both.
func (j job) parts(s Settings) []scenario.Part {
	if j.kind == FairDisk {
		return []scenario.Part{{Law: scenario.Uncontrolled, Seconds: s.FairSeconds}}
	}
	parts := []scenario.Part{{Law: scenario.Uncontrolled, Seconds: s.UncontrolledSeconds}, {Law: control.FeedbackLaw, Seconds: s.ControlledSeconds}}
	if j.controlledFirst() {
		slices.Reverse(parts)
	}
	return parts
}

func (j job) controlledFirst() bool { return j.kind != FairDisk && j.repetition%2 == 0 }

// Begin returns the result that the options continue, or the reason why it cannot
// be continued.
func Begin(o Options) (Result, error) {
	result := Result{Host: report.ThisHost(), Settings: o.Settings, Repetitions: o.Repetitions, Plan: o.plan()}
	for _, name := range o.Only {
		if !slices.ContainsFunc(result.Plan, func(s Scenario) bool { return s.Name == name }) {
			return result, fmt.Errorf("no scenario %q: choose of\n  %s", name, strings.Join(Names(), "\n  "))
		}
	}
	if o.Before == nil {
		if len(o.Only) > 0 {
			result.Plan = slices.DeleteFunc(result.Plan, func(s Scenario) bool { return !slices.Contains(o.Only, s.Name) })
		}
		return result, nil
	}
	before := *o.Before
	if err := result.continues(before); err != nil {
		return result, err
	}
	result.Plan = slices.DeleteFunc(result.Plan, func(s Scenario) bool {
		return !slices.ContainsFunc(before.Plan, s.sameAs) && !slices.Contains(o.Only, s.Name)
	})
	result.Repetitions = max(result.Repetitions, before.Repetitions)
	// Runs that failed are repeated: they have no figures.
	result.Runs = slices.DeleteFunc(slices.Clone(before.Runs), func(run Run) bool {
		return run.Failed != "" || o.Anew && run.Kind == Judged && slices.Contains(o.Only, run.Scenario)
	})
	return result, nil
}

// continues refuses runs that may not stand beside those of the result.
func (r Result) continues(before Result) error {
	switch {
	case before.Settings != r.Settings:
		return fmt.Errorf("the runs before were made with other settings, %+v; now %+v", before.Settings, r.Settings)
	case before.Host != r.Host:
		return fmt.Errorf("the runs before were made on another host, %+v; this is %+v", before.Host, r.Host)
	case len(before.Plan) == 0:
		return errors.New("the file has no scenarios: it is of another version of this benchmark")
	}
	for _, s := range before.Plan {
		if !slices.ContainsFunc(r.Plan, s.sameAs) {
			return fmt.Errorf("the runs before were made with another version of the scenario %q", s.Name)
		}
	}
	return nil
}

// Names lists the scenarios.
func Names() []string {
	var names []string
	for _, s := range Full.plan() {
		names = append(names, s.Name)
	}
	return names
}

// maxFailures consecutive failures end the benchmark: then the cause is not the
// run.
const maxFailures = 3

// Measure makes the missing runs, several at a time. With an error it also returns
// what was measured.
func Measure(ctx context.Context, l fixture.Lab, o Options) (Result, error) {
	result, err := Begin(o)
	if err != nil {
		return result, err
	}
	if err := checkMemory(o.Lanes); err != nil {
		return result, err
	}
	jobs := slices.DeleteFunc(result.jobs(), func(j job) bool {
		return len(o.Only) > 0 && j.kind == Judged && !slices.Contains(o.Only, j.scenario.Name)
	})
	return measure(ctx, l, o, result, jobs)
}

// measure adds runs to a result: first those alone, then several at a time.
func measure(ctx context.Context, l fixture.Lab, o Options, result Result, jobs []job) (Result, error) {
	// On cgroup v2 it keeps the controllers enabled while lanes come and go.
	group, err := fixture.NewGroup(l.Tree)
	if err != nil {
		return result, err
	}
	m := &measuring{Options: o, result: result, left: len(jobs), jobs: make(chan job)}
	running, cancel := context.WithCancelCause(ctx)
	for len(jobs) > 0 && jobs[0].kind == Alone && running.Err() == nil {
		if err := m.run(running, jobs[0], 0); err != nil {
			cancel(err)
		}
		jobs = jobs[1:]
	}
	var lanes sync.WaitGroup
	for lane := range max(1, o.Lanes) {
		lanes.Add(1)
		go func() {
			defer lanes.Done()
			for j := range m.jobs {
				if err := m.run(running, j, lane); err != nil {
					cancel(err)
				}
			}
		}()
	}
	for _, j := range jobs {
		select {
		case m.jobs <- j:
			continue
		case <-running.Done():
		}
		break
	}
	close(m.jobs)
	lanes.Wait()
	err = context.Cause(running)
	cancel(nil)
	return m.result, errors.Join(err, group.Close())
}

// measuring is a measurement in progress.
type measuring struct {
	Options
	jobs chan job

	mu       sync.Mutex
	result   Result
	left     int
	took     time.Duration // of all runs that ended
	ended    int
	failures int // consecutive
}

// run makes one run and keeps it. An error ends all runs.
func (m *measuring) run(ctx context.Context, j job, lane int) error {
	if ctx.Err() != nil {
		return nil
	}
	run := Run{
		Scenario: j.scenario.Name, Kind: j.kind, Repetition: j.repetition, Lane: lane, Began: time.Now().UTC().Truncate(time.Second),
		Version: m.Version, ControlledFirst: j.controlledFirst(),
	}
	begin := time.Now()
	answer, err := inProcess(ctx, scenario.Request{Scenario: j.scenario.Scenario, Parts: j.parts(m.Settings)})
	if ctx.Err() != nil {
		return nil // the result of an interrupted run is not kept
	}
	if err == nil {
		err = run.fill(j, answer)
	}
	run.Seconds = time.Since(begin).Seconds()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failures++; err == nil {
		m.failures = 0
		err = m.keepRecording(&run, j, answer)
	}
	if err != nil {
		run.Failed = err.Error()
	}
	m.result.Runs = append(m.result.Runs, run)
	m.left--
	m.ended++
	m.took += time.Since(begin)
	if m.Say != nil {
		m.Say(m.line(run))
	}
	if m.Save != nil {
		if err := m.Save(m.result); err != nil {
			return err
		}
	}
	if m.failures >= maxFailures {
		return fmt.Errorf("%d runs failed one after the other, the last: %w", m.failures, err)
	}
	return nil
}

// line reports a run and the remaining time.
func (m *measuring) line(run Run) string {
	left := m.took / time.Duration(m.ended) * time.Duration(m.left) / time.Duration(max(1, m.Lanes))
	text := fmt.Sprintf("%d runs left, about %v: %s, run %d", m.left, left.Round(time.Minute), run.Scenario, run.Repetition)
	c := run.Controlled
	switch {
	case run.Failed != "":
		return text + " failed: " + run.Failed
	case run.Kind == FairDisk:
		return fmt.Sprintf("%s (fair disk): %.1f MB/s", text, run.Uncontrolled.BytesPerSecond/1e6)
	}
	return fmt.Sprintf("%s: mean %.1f points off, worst interval %.1f, %.0f %% within 5; %.1f MB/s, uncontrolled %.1f; processors %.0f %% busy, %.0f %% stolen",
		text, 100*c.MeanError, 100*c.WorstDeviation, 100*c.Within, c.BytesPerSecond/1e6, run.Uncontrolled.BytesPerSecond/1e6, 100*c.Busy, 100*c.Stolen)
}

// fill computes the figures of the phases.
func (run *Run) fill(j job, answer scenario.Answer) error {
	run.CPUSeconds = answer.CPUSeconds
	for _, phase := range answer.Phases {
		into, skip := &run.Uncontrolled, 0
		if phase.Name != scenario.Uncontrolled {
			into, skip = &run.Controlled, warmUpIntervals
		}
		var err error
		if *into, err = figuresOf(j.scenario.Scenario, phase, skip); err != nil {
			return fmt.Errorf("%s phase: %w", phase.Name, err)
		}
	}
	return nil
}

// keepRecording keeps the recording of a run that missed a goal for shares, for
// `daybook replay`.
func (m *measuring) keepRecording(run *Run, j job, answer scenario.Answer) error {
	if run.Kind != Judged || m.Recordings == "" || len(run.misses(0)) == 0 {
		return nil
	}
	if err := os.MkdirAll(m.Recordings, 0o755); err != nil {
		return fmt.Errorf("cannot keep a recording: %w", err)
	}
	path := filepath.Join(m.Recordings, fmt.Sprintf("%s-%02d.json", fileName(j.scenario.Name), j.repetition))
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("cannot keep a recording: %w", err)
	}
	recorder, err := account.OpenRecorder(path)
	if err != nil {
		return err
	}
	var errs []error
	for _, phase := range answer.Phases {
		if phase.Name == scenario.Uncontrolled {
			continue
		}
		for _, sample := range phase.Recording() {
			errs = append(errs, recorder.Record(sample))
		}
	}
	run.Recording = path
	return errors.Join(append(errs, recorder.Close())...)
}

// fileName replaces all characters except letters, digits and dashes.
func fileName(name string) string {
	fields := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9') })
	return strings.Join(fields, "-")
}

// stopPatience is how long a run may take to clean up.
const stopPatience = fixture.CloseTimeout + 30*time.Second

// inProcess runs a request in its own process, with its own disk, cgroups, BPF
// programs and state of control. The process cleans up, also when it is
// interrupted.
func inProcess(ctx context.Context, request scenario.Request) (scenario.Answer, error) {
	environment, err := request.Environment()
	if err != nil {
		return scenario.Answer{}, err
	}
	var output bytes.Buffer
	process, err := program.Start(program.Command{
		Path: "/proc/self/exe", Environment: environment, Output: &output, DeathSignal: syscall.SIGTERM,
	})
	if err != nil {
		return scenario.Answer{}, err
	}
	select {
	case <-process.Ended():
	case <-ctx.Done():
		if err := process.Stop(syscall.SIGTERM, stopPatience); err != nil {
			return scenario.Answer{}, err
		}
	}
	if _, err := process.Wait(context.WithoutCancel(ctx)); err != nil {
		return scenario.Answer{}, err
	}
	return scenario.ReadAnswer(&output)
}
