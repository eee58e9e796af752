package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/blockstream"
	"github.com/daybook-project/daybook/internal/experiment/papers3and4/nvjournal"
)

// nvjournalStreams are the loads, and how many operations of each are recorded.
var nvjournalStreams = []struct {
	load       string
	operations int
}{{"varmail", 10_000}, {"create", 10_000}}

func newNVJournalCommand() *cobra.Command {
	b := &bench{name: "nvjournal"}
	o := nvjournal.Options{Rounds: 5}
	var source, recordings, kept string
	cmd := &cobra.Command{
		Use:   "nvjournal",
		Short: "Compare nvjournal with other journals on this machine",
		Long: `Nvjournal runs recorded block updates on nvjournal, on journals with one lock or with
whole blocks, and on the libraries of PMDK. It measures update, commit, recovery and
checkpoint, and fails if a bound is missed.

With several threads, the result depends on the time in which a cache line moves between
two processors, and the host of a virtual machine changes this time within seconds.
Nvjournal measures it before and after each round of several threads. A round is "near"
if the time is short and "apart" if it is long. Ratios are computed from pairs of rounds
in the same state; each state has its own tables and verdicts. With fewer than 3 pairs
there is no verdict. If a state has too few pairs, further rounds wait for it, at most
20 s each.

It also counts the cache lines that move between processors, in a simulation of 1 to 64
processors. The counts do not depend on the machine. A model of the time is based on
them.

If a recording is missing, it is made first, which needs root. Without root, the small
samples in nvjournal/bench are used.`,
		Example: `  daybook-bench nvjournal --docs docs/results

  # One section again, for example for rounds that are apart; the others stay unchanged
  daybook-bench nvjournal --only updates --docs docs/results`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kept != "" {
				return again[nvjournal.Result](b, cmd, kept)
			}
			o.Progress, o.Quick = cmd.ErrOrStderr(), b.quick
			if o.Only != "" {
				if err := b.before(&o.Before); err != nil {
					return err
				}
			}
			if err := findNVJournal(cmd, &o, source, recordings); err != nil {
				return err
			}
			result, err := nvjournal.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			return b.finish(cmd, result)
		},
	}
	b.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&source, "source", "nvjournal", "the `DIR` of nvjournal's Makefile")
	flags.StringVar(&recordings, "recordings", filepath.Join("build", "bench"), "the `DIR` with the recordings")
	flags.StringVar(&kept, "again", "", "measure nothing; write the page from the figures in `FILE`")
	flags.StringVar(&o.Only, "only", "", "measure only this `SECTION` (streams, updates, commit, recovery, rings, checkpoint, order, data, machine, latency, transfers); the others stay unchanged in --output")
	flags.IntVar(&o.Rounds, "rounds", o.Rounds, "take medians of `N` rounds, 1 to 33")
	flags.IntSliceVar(&o.Latencies, "latency", []int{0, 100, 300, 500}, "also measure memory whose fences take `NS,NS...` nanoseconds longer")
	flags.IntVar(&o.FenceNanoseconds, "fence-ns", 0, "`NANOSECONDS` to add to each fence, to simulate slower memory")
	flags.IntVar(&o.LineNanoseconds, "line-ns", 0, "`NANOSECONDS` to add to each cache line written")
	flags.IntVar(&o.MegabytesPerSecond, "bandwidth", 0, "limit the memory to `MB/S`; 0: no limit")
	return cmd
}

// findNVJournal builds the programs and finds the recordings.
func findNVJournal(cmd *cobra.Command, o *nvjournal.Options, source, recordings string) error {
	if err := runMake(cmd, "nvjournal's benchmark", source, "bench-program", "transfers-program"); err != nil {
		return err
	}
	o.Program = filepath.Join(source, "build", "bench", "bench")
	o.Counter = filepath.Join(source, "build", "bench", "transfers", "transfers")
	for _, s := range nvjournalStreams {
		path, err := findRecording(cmd, s.load, s.operations, recordings, source)
		if err != nil {
			return err
		}
		o.Streams = append(o.Streams, nvjournal.Recording{Name: s.load, Path: path})
	}
	return nil
}

// findRecording makes the recording if it is missing, and returns its path.
func findRecording(cmd *cobra.Command, load string, operations int, directory, source string) (string, error) {
	path := filepath.Join(directory, load+".blocks")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if os.Geteuid() != 0 {
		sample := filepath.Join(source, "bench", load+".blocks.gz")
		path = filepath.Join(directory, load+"-sample.blocks")
		fmt.Fprintf(cmd.ErrOrStderr(), "nvjournal: not root: %s is measured with the sample %s\n", load, sample)
		return path, unpackRecording(sample, path)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "nvjournal: recording %s\n", load)
	return path, makeRecording(cmd.Context(), load, operations, path)
}

func makeRecording(ctx context.Context, load string, operations int, path string) error {
	o := blockstream.Options{Load: load, Operations: operations, Directory: imageDirectory(), Seed: 1}
	_, err := recordUpdates(ctx, o, path)
	return err
}

func unpackRecording(sample, path string) error {
	s, err := blockstream.ReadFile(sample)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return s.WriteFile(path)
}
