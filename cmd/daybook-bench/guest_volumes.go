package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/guestvolumes"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/kernels"
)

func newGuestVolumesCommand() *cobra.Command {
	b := bench{name: "guest-volumes"}
	var names, arrangements, dividers, loads []string
	cmd := &cobra.Command{
		Use:   "guest-volumes",
		Short: "Shares of two volumes on cgroup v2, under io.cost and under BFQ, in guests",
		Long: `Guest-volumes boots Debian's kernels under QEMU and runs there, on a virtio disk with a
limit on its bandwidth, two containers of weights 700 and 300 that write and sync: on a
volume each in a pool on XFS (VX), and on a partition each (P), under io.cost with a model
of three quarters of the disk, with too short a period, with a model of all of the disk, and
under BFQ, 40 s each, with files that grow and with files that are rewritten. It fails if the
share of A on volumes under io.cost is more than 3 points off. It takes some 20 minutes for
each kernel and wants fio and mkfs.xfs (scripts/setup bench).`,
		Example: `  daybook-bench guest-volumes --docs docs/results
  daybook-bench guest-volumes --quick --kernels 6.12

  # One part again; the others stay as they are in --output
  daybook-bench guest-volumes --kernels 6.12 --arrangements VX --dividers bfq --docs docs/results`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab, err := b.lab(cmd)
			if err != nil {
				return err
			}
			options := guestvolumes.Full
			if b.quick {
				options = guestvolumes.Quick
			}
			options.Boot, options.Kernels = bootVolumesGuest, names
			choose(&options.Arrangements, arrangements)
			choose(&options.Dividers, dividers)
			choose(&options.Loads, loads)
			if len(arrangements)+len(dividers)+len(loads) > 0 || cmd.Flags().Changed("kernels") {
				if err := b.before(&options.Before); err != nil {
					return err
				}
			}
			result, err := guestvolumes.Bench(cmd.Context(), lab, options)
			if err != nil {
				return err
			}
			return b.finish(cmd, result, result.Report, result.Check)
		},
	}
	b.flags(cmd)
	cmd.Flags().StringSliceVar(&names, "kernels", kernels.Names(), "`NAMES` of kernels, with commas between")
	cmd.Flags().StringSliceVar(&arrangements, "arrangements", nil, "measure only these `ARRANGEMENTS`: VX, P")
	cmd.Flags().StringSliceVar(&dividers, "dividers", nil, "measure only under these `DIVIDERS`: io.cost, io.cost-short, io.cost-full, bfq")
	cmd.Flags().StringSliceVar(&loads, "loads", nil, "measure only these `LOADS`: growing, rewriting")
	cmd.AddCommand(newPhaseCommand(guestvolumes.RunInGuest))
	return cmd
}

// bootVolumesGuest boots a kernel of the pin file with the experiment's disk.
func bootVolumesGuest(ctx context.Context, kernel string) (guestvolumes.Guest, error) {
	machine, err := vm.Boot(ctx, vm.Config{
		Kernel:      kernel,
		MemoryBytes: 2 * vm.DefaultMemoryBytes,
		Disks:       []vm.Disk{{SizeBytes: guestvolumes.DiskBytes, BytesPerSecond: guestvolumes.DiskBytesPerSecond}},
		Modules:     []string{"ext4", "xfs", "bfq", "loop"},
		Give:        []vm.Give{{Host: "mke2fs"}, {Host: "mkfs.xfs"}, {Host: "fio"}},
	})
	if err != nil {
		return nil, err
	}
	return &guest{machine}, nil
}

func (g *guest) RunVolumes(ctx context.Context, c guestvolumes.Case, tell func(line string)) (phase guestvolumes.Phase, err error) {
	out, err := g.phase(ctx, "guest-volumes", c, tell)
	if err != nil {
		return phase, err
	}
	if err := json.NewDecoder(out).Decode(&phase); err != nil {
		return phase, fmt.Errorf("cannot read the guest's result: %w", err)
	}
	return phase, nil
}
