package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/blockstream"
)

func newUpdatesCommand() *cobra.Command {
	o := blockstream.Options{Seed: 1}
	var out string
	cmd := &cobra.Command{
		Use:   "updates --out FILE",
		Short: "Record what an ext4 changes of its blocks, for the journals' benchmark",
		Long: `Updates runs a load on an ext4 of its own, whose journal is a loop device, syncs after each
operation, and takes from the journal which lines of which blocks each operation changed.
The loads: "varmail", a mail server's (files of 16 KiB mean: delete; create, append, fsync;
read, append, fsync; read), and "create", which makes files of 4 KiB. A name that ends in
".gz" is compressed. The format is in the documentation of package blockstream.`,
		Example: "  daybook-bench updates --load varmail --operations 20000 --out build/bench/varmail.blocks",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return errors.New("where to? want --out FILE")
			}
			counts, err := recordUpdates(cmd.Context(), o, out)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d operations changed %d lines in %d updates of %d blocks\n",
				out, counts.Operations, counts.Lines, counts.Updates, counts.Blocks)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&out, "out", "", "write the recording to `FILE`")
	flags.StringVar(&o.Load, "load", "varmail", "what runs: varmail or create")
	flags.IntVar(&o.Operations, "operations", 10_000, "how many `N` operations")
	flags.StringVar(&o.Directory, "directory", imageDirectory(), "where the disks' images lie meanwhile")
	flags.Uint64Var(&o.Seed, "seed", o.Seed, "chooses files and sizes")
	return cmd
}

// imageDirectory is in memory, if there is such: each operation is synced.
func imageDirectory() string {
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err == nil {
		return memory
	}
	return ""
}

// recordUpdates leaves a whole file or none.
func recordUpdates(ctx context.Context, o blockstream.Options, out string) (blockstream.Counts, error) {
	if os.Geteuid() != 0 {
		return blockstream.Counts{}, errors.New("want root: a recording makes loop devices and mounts an ext4")
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return blockstream.Counts{}, err
	}
	r, err := blockstream.Record(ctx, o, nil)
	if err != nil {
		return blockstream.Counts{}, err
	}
	return r.Stream.Count(), r.Stream.WriteFile(out)
}
