package filesystems

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/program"
)

// LoadProgram is the path in the guest of the program of nvjournal/kernel/bench.
const LoadProgram = "/load"

// RunInGuest runs a case, given as JSON, on this machine, which is a guest. It writes
// the samples as JSON to output, and messages to progress.
func RunInGuest(ctx context.Context, text string, output, progress io.Writer) error {
	return fixture.RunInGuest(ctx, text, output, progress, func(ctx context.Context, l fixture.Lab, c Case) (samples []Sample, err error) {
		if c.Instructions {
			remove, failed := c.memoryDisks()
			if failed != nil {
				return nil, failed
			}
			defer func() { err = errors.Join(err, remove()) }()
		}
		err = c.run(ctx, func(s Sample) error { samples = append(samples, s); return nil }, l.Say)
		return samples, err
	})
}

// run makes the file systems and measures them. It passes each sample to got.
func (c Case) run(ctx context.Context, got func(Sample) error, announce func(line string)) (err error) {
	announce("making " + strconv.Itoa(len(c.Arrangements)) + " file systems")
	s, err := mountSystems(ctx, c)
	if err != nil {
		return err
	}
	defer func() {
		if s != nil {
			err = errors.Join(err, s.unmount())
		}
	}()
	if err := s.prepareMail(ctx, c); err != nil {
		return err
	}
	for round := range c.Rounds + 1 {
		for _, load := range c.Loads {
			for _, threads := range c.Threads {
				announce(fmt.Sprintf("round %d of %d, %s, %d threads", round, c.Rounds, load, threads))
				for n := range s.all {
					// Each round starts with another file system.
					system := &s.all[(n+round)%len(s.all)]
					sample, err := system.sample(ctx, c, load, threads, round)
					if err != nil {
						return fmt.Errorf("%s, %s, %d threads: %w", system.arrangement, load, threads, err)
					}
					if round == 0 && c.Uncounted {
						continue
					}
					if err := got(sample); err != nil {
						return err
					}
				}
			}
		}
	}
	announce("unmounting, and checking the file systems")
	closed := s
	s = nil
	return closed.close(ctx)
}

// prepareMail makes the files of varmail, which all its runs use.
func (s *systems) prepareMail(ctx context.Context, c Case) error {
	if !slices.Contains(c.Loads, Varmail) {
		return nil
	}
	for _, system := range s.all {
		if err := os.Mkdir(system.mail(), 0o755); err != nil {
			return err
		}
		if err := c.prepare(ctx, loadRun{load: Varmail, directory: system.mail(), files: mailFiles}); err != nil {
			return fmt.Errorf("%s: %w", system.arrangement, err)
		}
	}
	return nil
}

func (s *system) mail() string { return filepath.Join(s.directory, "mail") }

// sample runs a load. In round 0 the work is counted.
func (s *system) sample(ctx context.Context, c Case, load string, threads, round int) (sample Sample, err error) {
	sample = Sample{Load: load, Arrangement: s.arrangement, Threads: threads}
	run := loadRun{load: load, directory: s.mail(), files: mailFiles, threads: threads, milliseconds: c.Milliseconds, seed: round + 1}
	if load == Create {
		if run, err = s.prepareCreate(ctx, c, threads); err != nil {
			return sample, err
		}
	}
	if err := s.writeOut(); err != nil {
		return sample, err
	}
	switch {
	case round > 0 && c.Holds:
		sample.Holds, err = s.held(func() (LoadResult, error) { return c.load(ctx, run) })
	case c.Instructions:
		sample.Result, sample.Instructions, err = executed(func() (LoadResult, error) { return c.load(ctx, run) })
	case round > 0 || c.Uncounted:
		sample.Result, err = c.load(ctx, run)
	default:
		var r reading
		r.threads = threads
		sample.Result, err = s.counted(&r, c.InKernel, func() (LoadResult, error) { return c.load(ctx, run) })
		if err == nil {
			sample.Counts = new(Counts)
			*sample.Counts, err = r.counts()
		}
	}
	if err == nil && load == Create && c.CreateMilliseconds > 0 {
		run.load, run.milliseconds = cleanLoad, 0
		_, err = c.load(ctx, run)
	}
	return sample, errors.Join(err, s.writeOut())
}

// cleanLoad deletes what a run of create with the same number of threads made, before its
// data is written back.
const cleanLoad = "clean"

// prepareCreate makes the directories for a run of create. All runs with a time limit use
// the same ones, because their files are deleted.
func (s *system) prepareCreate(ctx context.Context, c Case, threads int) (loadRun, error) {
	run := loadRun{load: Create, files: c.CreateFiles, threads: threads, milliseconds: c.CreateMilliseconds, seed: 1}
	prepared := s.made > 0 && c.CreateMilliseconds > 0
	if !prepared {
		s.made++
	}
	run.directory = filepath.Join(s.directory, "made"+strconv.Itoa(s.made))
	if prepared {
		return run, nil
	}
	if err := os.Mkdir(run.directory, 0o755); err != nil {
		return run, err
	}
	return run, c.prepare(ctx, run)
}

// counted calls run with the counting active. timed means that waits are timed, too.
func (s *system) counted(r *reading, timed bool, run func() (LoadResult, error)) (result LoadResult, err error) {
	if r.disk, err = deviceNumber(s.disk); err != nil {
		return result, err
	}
	if s.journal != "" {
		if r.journal, err = deviceNumber(s.journal); err != nil {
			return result, err
		}
	}
	if r.before, err = s.counters(); err != nil {
		return result, err
	}
	stop, err := startCounting()
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if timed {
		stopTiming, failed := startTiming()
		if failed != nil {
			return result, failed
		}
		defer func() { err = errors.Join(err, stopTiming()) }()
	}
	if result, err = run(); err != nil {
		return result, err
	}
	r.operations = result.Operations
	r.uncounted = s.arrangement == JFSDisk || s.arrangement == JFSPmem
	if r.histograms, err = readHistograms(); err != nil {
		return result, err
	}
	if timed {
		t, err := readTimes()
		if err != nil {
			return result, err
		}
		r.timed = &t
	}
	r.after, err = s.counters()
	return result, err
}

// loadRun is a run of a load in a prepared directory.
type loadRun struct {
	load, directory string
	// milliseconds is 0 for a run that ends by itself.
	files, threads, milliseconds, seed int
}

// arguments are those of the load program.
func (r loadRun) arguments() []string {
	all := []string{r.load, r.directory, "--files", strconv.Itoa(r.files), "--threads", strconv.Itoa(r.threads), "--seed", strconv.Itoa(r.seed)}
	if r.milliseconds > 0 {
		all = append(all, "--milliseconds", strconv.Itoa(r.milliseconds))
	}
	return all
}

// line is what nvjournal/kernel/native/load_threads.c reads.
func (r loadRun) line() string {
	return fmt.Sprintf("%s %s %d %d %d %d\n", r.load, r.directory, r.files, r.threads, r.milliseconds, r.seed)
}

// kernelLoads is the file of the module that runs the loads in the kernel.
const kernelLoads = "/proc/daybook-load"

func (c Case) load(ctx context.Context, r loadRun) (result LoadResult, err error) {
	var out string
	if c.InKernel {
		out, err = r.inKernel()
	} else {
		out, err = program.Output(ctx, program.Command{Path: c.program(), Args: r.arguments()})
	}
	if err != nil {
		return result, fmt.Errorf("%s: %w", strings.Join(r.arguments(), " "), err)
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		return result, fmt.Errorf("cannot read the result of a load: %w", err)
	}
	return result, nil
}

func (r loadRun) inKernel() (string, error) {
	if err := os.WriteFile(kernelLoads, []byte(r.line()), 0); err != nil {
		return "", fmt.Errorf("%w; see the kernel's log", err)
	}
	out, err := os.ReadFile(kernelLoads)
	return string(out), err
}

// prepare makes in an empty directory what a run needs.
func (c Case) prepare(ctx context.Context, r loadRun) error {
	_, err := program.Output(ctx, program.Command{Path: c.program(), Args: []string{r.load, r.directory, "--files", strconv.Itoa(r.files), "--prepare"}})
	if err != nil {
		return fmt.Errorf("cannot prepare %s: %w", r.load, err)
	}
	return nil
}

func (c Case) program() string { return cmp.Or(c.LoadPath, LoadProgram) }
