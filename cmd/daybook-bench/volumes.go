package main

import (
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/volumes"
)

func newVolumesCommand() *cobra.Command {
	b := bench{name: "volumes"}
	var only, disks, modes, neighbours, arrangements []string
	rounds, seconds := 0, 0
	cmd := &cobra.Command{
		Use:   "volumes",
		Short: "A database beside a neighbour that syncs, with a shared journal and with its own",
		Long: `Volumes runs paper 2's experiments: fio, MariaDB and PostgreSQL beside a neighbour that
never syncs, seldom, always, and always under a limit on its writes; on one shared ext4 (S),
on a volume each (V), on volumes whose jbd2 threads are placed under their containers'
weights (VA), on the same with the pool on XFS (VX), with fio also while daybook control
steers (VC), on volumes that are partitions (VD, VDC), and without Daybook on a partition
each (P) with a loop device over it (L); on a simulated and on a plain disk. ext4 is mounted
as the paper's kernels did (ordered), and for MariaDB also with today's default (unwritten).
Besides: what the scheduler's slices give and cost, and what is left of the pool's own
journal. It fails if a bound is missed. It takes 55 minutes and wants fio, MariaDB, sysbench
and PostgreSQL (scripts/setup bench).`,
		Example: `  daybook-bench volumes --docs docs/results
  daybook-bench volumes --quick

  # What control makes of two volumes' shares, in phases of a minute
  daybook-bench volumes --only fio --neighbour high-fsync --arrangement VX,VC,VDC --rounds 3 --seconds 60 --output shares.json

  # One part again, five times; the others stay as they are in --output
  daybook-bench volumes --only fio --neighbour alone,high-fsync --rounds 5 --docs docs/results`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab, err := b.lab(cmd)
			if err != nil {
				return err
			}
			options := volumes.Full
			if b.quick {
				options = volumes.Quick
			}
			if cmd.Flags().Changed("rounds") {
				options.Rounds = rounds
			}
			if cmd.Flags().Changed("seconds") {
				options.Seconds = seconds
			}
			choose(&options.Loads, only)
			choose(&options.Disks, disks)
			choose(&options.DataModes, modes)
			choose(&options.Neighbours, neighbours)
			choose(&options.Arrangements, arrangements)
			if len(only)+len(disks)+len(modes)+len(neighbours)+len(arrangements) > 0 {
				if err := b.before(&options.Before); err != nil {
					return err
				}
			}
			result, err := volumes.Bench(cmd.Context(), lab, options)
			if err != nil {
				return err
			}
			// What was measured is written also if it cannot be drawn.
			var drawn error
			if b.docs != "" {
				figures, err := result.Figures()
				drawn = err
				for name, picture := range figures {
					drawn = errors.Join(drawn, write(filepath.Join(b.docs, name), picture))
				}
			}
			check := result.Check
			if b.quick {
				check = func() error { return nil } // too short to tell
			}
			return errors.Join(b.finish(cmd, result, result.Report, check), drawn)
		},
	}
	b.flags(cmd)
	cmd.Flags().IntVar(&seconds, "seconds", volumes.Full.Seconds, "length of a phase, behind its warm-up")
	cmd.Flags().IntVar(&rounds, "rounds", 1, "measure each phase so often, in turn, and keep the one of median throughput (not of slices and pool)")
	cmd.Flags().StringSliceVar(&only, "only", nil, "measure only these `LOADS`: fio, mariadb, postgresql, slices, pool")
	cmd.Flags().StringSliceVar(&neighbours, "neighbour", nil, "measure only beside these `NEIGHBOURS`: alone, no-fsync, low-fsync, high-fsync, limited")
	cmd.Flags().StringSliceVar(&arrangements, "arrangement", nil, "measure only in these `ARRANGEMENTS`, and forget the others beside the same neighbours: S, V, VA, VX, VC, VD, VDC, L, P")
	cmd.Flags().StringSliceVar(&modes, "data-mode", nil, "measure only with these `MODES` of ext4: ordered (as before Linux 5.6), unwritten")
	cmd.Flags().StringSliceVar(&disks, "disk", nil, "measure only on these `DISKS`: hdd, plain")
	return cmd
}
