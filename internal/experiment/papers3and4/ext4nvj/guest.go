package ext4nvj

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/program"
)

// LoadProgram is the path in the guest of the program of nvjournal/kernel/bench.
const LoadProgram = "/load"

// RunInGuest runs a case, given as JSON, on this machine, which is a guest. It writes
// each Sample as a line of JSON to output, and messages to progress.
func RunInGuest(ctx context.Context, text string, output, progress io.Writer) (err error) {
	var c Case
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return fmt.Errorf("cannot read the case: %w", err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	return c.run(ctx, json.NewEncoder(output), fixture.LinesTo(progress))
}

// run makes the file systems and measures them. It writes each Sample to encoder.
func (c Case) run(ctx context.Context, encoder interface{ Encode(any) error }, announce func(line string)) (err error) {
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
					if err := encoder.Encode(sample); err != nil {
						return err
					}
				}
			}
		}
	}
	announce("unmounting, and checking with e2fsck")
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
		if _, err := c.load(ctx, Varmail, system.mail(), "--files", strconv.Itoa(mailFiles), "--prepare"); err != nil {
			return fmt.Errorf("%s: %w", system.arrangement, err)
		}
	}
	return nil
}

func (s *system) mail() string { return filepath.Join(s.directory, "mail") }

// sample runs a load. In round 0 the work is counted.
func (s *system) sample(ctx context.Context, c Case, load string, threads, round int) (sample Sample, err error) {
	sample = Sample{Load: load, Arrangement: s.arrangement, Threads: threads}
	directory, arguments := s.mail(), []string{"--files", strconv.Itoa(mailFiles), "--milliseconds", strconv.Itoa(c.Milliseconds), "--seed", strconv.Itoa(round + 1)}
	if load == Create {
		s.made++
		directory, arguments = filepath.Join(s.directory, "made"+strconv.Itoa(s.made)), []string{"--files", strconv.Itoa(c.CreateFiles)}
		if err := os.Mkdir(directory, 0o755); err != nil {
			return sample, err
		}
		if _, err := c.load(ctx, load, directory, append(arguments, "--prepare")...); err != nil {
			return sample, err
		}
	}
	if err := s.writeOut(); err != nil {
		return sample, err
	}
	arguments = append(arguments, "--threads", strconv.Itoa(threads))
	if round > 0 || c.Uncounted {
		sample.Result, err = c.load(ctx, load, directory, arguments...)
	} else {
		var r reading
		sample.Result, r, err = s.counted(func() (LoadResult, error) { return c.load(ctx, load, directory, arguments...) })
		if err == nil {
			sample.Counts = new(Counts)
			*sample.Counts, err = r.counts()
		}
	}
	return sample, errors.Join(err, s.writeOut())
}

// counted calls run with the counting active.
func (s *system) counted(run func() (LoadResult, error)) (result LoadResult, r reading, err error) {
	if r.disk, err = deviceNumber(s.disk); err != nil {
		return result, r, err
	}
	if s.journal != "" {
		if r.journal, err = deviceNumber(s.journal); err != nil {
			return result, r, err
		}
	}
	if r.before, err = s.counters(); err != nil {
		return result, r, err
	}
	stop, err := startCounting()
	if err != nil {
		return result, r, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if result, err = run(); err != nil {
		return result, r, err
	}
	r.operations = result.Operations
	if r.histograms, err = readHistograms(); err != nil {
		return result, r, err
	}
	r.after, err = s.counters()
	return result, r, err
}

// load runs the load program. With --prepare it prints nothing.
func (c Case) load(ctx context.Context, load, directory string, arguments ...string) (result LoadResult, err error) {
	if c.Processes && !slices.Contains(arguments, "--prepare") {
		arguments = append(slices.Clone(arguments), "--processes")
	}
	out, err := program.Output(ctx, program.Command{Path: cmp.Or(c.LoadPath, LoadProgram), Args: append([]string{load, directory}, arguments...)})
	if err != nil {
		return result, fmt.Errorf("%s %s: %w", load, strings.Join(arguments, " "), err)
	}
	if slices.Contains(arguments, "--prepare") {
		return result, nil
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		return result, fmt.Errorf("cannot read the output of the load program: %w", err)
	}
	return result, nil
}
