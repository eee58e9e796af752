package main

import (
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/paper2/volumes"
)

func newVolumesCommand() *cobra.Command {
	b := bench{name: "volumes"}
	var only, disks, modes, neighbours, arrangements []string
	rounds, seconds := 0, 0
	cmd := &cobra.Command{
		Use:   "volumes",
		Short: "Measure a database beside a neighbour that syncs",
		Long: `Volumes runs the experiments of paper 2: fio, MariaDB and PostgreSQL beside a neighbour
that never syncs, seldom syncs, always syncs, or always syncs under a limit on its
writes. The arrangements are

  S        one shared ext4
  V        a volume for each container
  VA, VX   like V, with the jbd2 threads under the containers' weights; VX: the pool on XFS
  VC       like VX, for fio, while daybook control runs
  VD, VDC  like VX and VC, with volumes that are partitions
  P, L     without Daybook: a partition for each; L: a loop device over it

The disk is simulated (hdd) or a loop device (plain). ext4 is mounted with the default
of the paper's kernels (ordered), and for MariaDB also with today's default (unwritten).
Volumes also measures the effect of the scheduler's slices, and the cost of the pool's
own journal. It fails if a bound is missed. It takes 55 minutes and needs fio, MariaDB,
sysbench and PostgreSQL (scripts/setup bench).`,
		Example: `  daybook-bench volumes --docs docs/results
  daybook-bench volumes --quick

  # The shares of two volumes under daybook control, in phases of a minute
  daybook-bench volumes --only fio --neighbour high-fsync --arrangement VX,VC,VDC --rounds 3 --seconds 60 --output shares.json

  # One part again, five times; the others in --output stay unchanged
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
			// Write the results even if drawing fails.
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
				check = func() error { return nil } // too short for a verdict
			}
			return errors.Join(b.finish(cmd, result, result.Report, check), drawn)
		},
	}
	b.flags(cmd)
	cmd.Flags().IntVar(&seconds, "seconds", volumes.Full.Seconds, "length of a phase in seconds, after its warm-up")
	cmd.Flags().IntVar(&rounds, "rounds", 1, "measure each phase this many times and keep the one with the median throughput (not for slices and pool)")
	cmd.Flags().StringSliceVar(&only, "only", nil, "measure only these `LOADS`: fio, mariadb, postgresql, slices, pool")
	cmd.Flags().StringSliceVar(&neighbours, "neighbour", nil, "measure only beside these `NEIGHBOURS`: alone, no-fsync, low-fsync, high-fsync, limited")
	cmd.Flags().StringSliceVar(&arrangements, "arrangement", nil, "measure only in these `ARRANGEMENTS`, and drop the others beside the same neighbours: S, V, VA, VX, VC, VD, VDC, L, P")
	cmd.Flags().StringSliceVar(&modes, "data-mode", nil, "measure only with these `MODES` of ext4: ordered (as before Linux 5.6), unwritten")
	cmd.Flags().StringSliceVar(&disks, "disk", nil, "measure only on these `DISKS`: hdd, plain")
	return cmd
}
