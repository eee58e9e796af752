package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/paper2/volumes"
)

func newVolumesCommand() *cobra.Command {
	b := &bench{name: "volumes", unjudged: true}
	var f volumesFlags
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
			if f.chosen() {
				if err := b.before(&f.before); err != nil {
					return err
				}
			}
			options := f.options(cmd, extent(b, volumes.Full, volumes.Quick))
			var drawn error
			err := measure(b, cmd, func(ctx context.Context, lab fixture.Lab) (volumes.Result, error) {
				result, err := volumes.Bench(ctx, lab, options)
				if err != nil || b.docs == "" {
					return result, err
				}
				// Write the results even if drawing fails.
				figures, err := result.Figures()
				drawn = errors.Join(err, b.writePictures(figures))
				return result, nil
			})
			return errors.Join(drawn, err) // an error that begins with the missed bounds has no other
		},
	}
	b.flags(cmd)
	cmd.Flags().IntVar(&f.seconds, "seconds", volumes.Full.Seconds, "length of a phase in seconds, after its warm-up")
	cmd.Flags().IntVar(&f.rounds, "rounds", 1, "measure each phase this many times and keep the one with the median throughput (not for slices and pool)")
	cmd.Flags().StringSliceVar(&f.only, "only", nil, "measure only these `LOADS`: fio, mariadb, postgresql, slices, pool")
	cmd.Flags().StringSliceVar(&f.neighbours, "neighbour", nil, "measure only beside these `NEIGHBOURS`: alone, no-fsync, low-fsync, high-fsync, limited")
	cmd.Flags().StringSliceVar(&f.arrangements, "arrangement", nil, "measure only in these `ARRANGEMENTS`, and drop the others beside the same neighbours: S, V, VA, VX, VC, VD, VDC, L, P")
	cmd.Flags().StringSliceVar(&f.modes, "data-mode", nil, "measure only with these `MODES` of ext4: ordered (as before Linux 5.6), unwritten")
	cmd.Flags().StringSliceVar(&f.disks, "disk", nil, "measure only on these `DISKS`: hdd, plain")
	return cmd
}

// volumesFlags are those of bench-volumes alone.
type volumesFlags struct {
	only, disks, modes, neighbours, arrangements []string
	rounds, seconds                              int
	// before has the parts that are not measured.
	before volumes.Result
}

// chosen reports whether only some parts are measured.
func (f *volumesFlags) chosen() bool {
	return len(f.only)+len(f.disks)+len(f.modes)+len(f.neighbours)+len(f.arrangements) > 0
}

// options returns the options with what the user chose.
func (f *volumesFlags) options(cmd *cobra.Command, o volumes.Options) volumes.Options {
	if cmd.Flags().Changed("rounds") {
		o.Rounds = f.rounds
	}
	if cmd.Flags().Changed("seconds") {
		o.Seconds = f.seconds
	}
	choose(&o.Loads, f.only)
	choose(&o.Disks, f.disks)
	choose(&o.DataModes, f.modes)
	choose(&o.Neighbours, f.neighbours)
	choose(&o.Arrangements, f.arrangements)
	o.Before = f.before
	return o
}
