package shares

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
	"github.com/daybook-project/daybook/internal/program"
)

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
