package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/paper2/guestvolumes"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/kernels"
)

func newGuestVolumesCommand() *cobra.Command {
	b := &bench{name: "guest-volumes"}
	var rounds int
	var names, arrangements, dividers, loads []string
	cmd := &cobra.Command{
		Use:   "guest-volumes",
		Short: "Measure the shares of two volumes on cgroup v2, in guests",
		Long: `Guest-volumes boots Debian's kernels under QEMU. In each, two containers of weights 700
and 300 write and sync on a virtio disk with limited bandwidth. Each has a volume in a
pool on XFS (VX), an image that a process serves by ublk (U, not on 6.1), a device-mapper
mapping of the extents of an image (M), or a partition (P). Each phase takes 40 s, with
files that grow, with files that are rewritten, and with a container that waits for each
sync. The disk is divided by BFQ, or by io.cost with a model of three quarters of the
disk, as daybook calibrate proposes it, with too short a period, or with a model of the
whole disk. It fails if the share of the container of weight 700 on volumes under io.cost
is more than 3 points off, or if one that waits there makes less than 0.9 times the syncs
of one on a partition. A round takes about an hour for each kernel. It needs fio, mkfs.xfs
and dmsetup (scripts/setup bench).`,
		Example: `  daybook-bench guest-volumes --docs docs/results
  daybook-bench guest-volumes --quick --kernels 6.12

  # Syncs of a container that waits, compared with a partition in each of five rounds
  daybook-bench guest-volumes --kernels 6.12 --dividers io.cost --loads waiting --rounds 5

  # One part again; the other parts in --output stay unchanged
  daybook-bench guest-volumes --kernels 6.12 --dividers bfq --docs docs/results`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options := extent(b, guestvolumes.Full, guestvolumes.Quick)
			options.Boot, options.Kernels, options.Rounds = bootVolumesGuest, names, rounds
			choose(&options.Arrangements, arrangements)
			choose(&options.Dividers, dividers)
			choose(&options.Loads, loads)
			if len(arrangements)+len(dividers)+len(loads) > 0 || cmd.Flags().Changed("kernels") {
				if err := b.before(&options.Before); err != nil {
					return err
				}
			}
			return measure(b, cmd, func(ctx context.Context, lab fixture.Lab) (guestvolumes.Result, error) {
				return guestvolumes.Bench(ctx, lab, options)
			})
		},
	}
	b.flags(cmd)
	cmd.Flags().StringSliceVar(&names, "kernels", kernels.Names(), "comma-separated `NAMES` of kernels")
	cmd.Flags().StringSliceVar(&arrangements, "arrangements", nil, "measure only these `ARRANGEMENTS`, and drop the others with the same loads and dividers: VX, U, M, P")
	cmd.Flags().StringSliceVar(&dividers, "dividers", nil, "measure only under these `DIVIDERS`: io.cost, io.cost-control, io.cost-full, bfq")
	cmd.Flags().StringSliceVar(&loads, "loads", nil, "measure only these `LOADS`: growing, rewriting, waiting")
	cmd.Flags().IntVar(&rounds, "rounds", 1, "measure each case `N` times, in rounds of all cases")
	cmd.AddCommand(newPhaseCommand(guestvolumes.RunInGuest))
	return cmd
}

// bootVolumesGuest boots a kernel of the pin file with the disk of the
// experiment.
func bootVolumesGuest(ctx context.Context, kernel string) (guestvolumes.Guest, error) {
	modules := []string{"ext4", "xfs", "bfq", "loop", "dm-mod"}
	if guestvolumes.RunsOn(guestvolumes.ServedOnXFS, kernel) {
		modules = append(modules, "ublk_drv")
	}
	return boot[guestvolumes.Case, guestvolumes.Phase](ctx, "guest-volumes", vm.Config{
		Kernel:      kernel,
		MemoryBytes: 2 * vm.DefaultMemoryBytes,
		Disks:       []vm.Disk{{SizeBytes: guestvolumes.DiskBytes, BytesPerSecond: guestvolumes.DiskBytesPerSecond}},
		Modules:     modules,
		Give:        []vm.Give{{Host: "mke2fs"}, {Host: "mkfs.xfs"}, {Host: "fio"}, {Host: "dmsetup"}},
	})
}
