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
		Short: "Record the block updates of an ext4, for bench-nvjournal",
		Long: `Updates runs a load on a new ext4 whose journal is a loop device, and syncs after each
operation. From the journal it records which lines of which blocks each operation
changed. The load "varmail" has the operations of a mail server (files of 16 KiB on
average: delete; create, append, fsync; read, append, fsync; read). The load "create"
makes files of 4 KiB. If the name of the output ends in ".gz", it is compressed. Package
blockstream documents the format.`,
		Example: "  daybook-bench updates --load varmail --operations 20000 --out build/bench/varmail.blocks",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return errors.New("--out FILE is required")
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
	flags.StringVar(&o.Load, "load", "varmail", "`LOAD` to run: varmail or create")
	flags.IntVar(&o.Operations, "operations", 10_000, "number `N` of operations")
	flags.StringVar(&o.Directory, "directory", imageDirectory(), "`DIR` for the temporary disk images")
	flags.Uint64Var(&o.Seed, "seed", o.Seed, "seed for the choice of files and sizes")
	return cmd
}

// imageDirectory prefers memory, because each operation is synced.
func imageDirectory() string {
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err == nil {
		return memory
	}
	return ""
}

// recordUpdates writes a complete file or none.
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
