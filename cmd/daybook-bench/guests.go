package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/paper1/guestshares"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/kernels"
)

func newGuestsCommand() *cobra.Command {
	b := &bench{name: "guests"}
	var options guestshares.Options
	cmd := &cobra.Command{
		Use:   "guests",
		Short: "Measure the shares of a virtio disk on cgroup v2, in guests",
		Long: `Guests boots Debian's kernels under QEMU. In each it runs 50:50 and 70:30 on a virtio disk
with limited bandwidth, under BFQ and under io.cost, uncontrolled and under the feedback law,
60 s each. It fails if a container's mean share under control is more than 3 points off its
target. For comparison it also runs 70:30, half as long, under io.cost with the kernel's
default settings. It takes 25 minutes.`,
		Example: "  daybook-bench guests --docs docs/results\n  daybook-bench guests --quick --kernels 6.12 --dividers io.cost",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked := extent(b, guestshares.Full, guestshares.Quick)
			asked.Boot, asked.Kernels, asked.Dividers = bootGuest, options.Kernels, options.Dividers
			return measure(b, cmd, func(ctx context.Context, lab fixture.Lab) (guestshares.Result, error) {
				return guestshares.Bench(ctx, lab, asked)
			})
		},
	}
	b.flags(cmd)
	cmd.Flags().StringSliceVar(&options.Kernels, "kernels", kernels.Names(), "comma-separated `NAMES` of kernels")
	cmd.Flags().StringSliceVar(&options.Dividers, "dividers", nil, "`DIVIDERS` of the disk: BFQ, io.cost, io.cost as enabled (default: all)")
	cmd.AddCommand(newPhaseCommand(guestshares.RunInGuest))
	return cmd
}

// bootGuest boots a kernel of the pin file with the disk of the experiment.
func bootGuest(ctx context.Context, kernel string) (guestshares.Guest, error) {
	return boot[guestshares.Case, scenario.Phase](ctx, "guests", vm.Config{
		Kernel:  kernel,
		Disks:   []vm.Disk{{SizeBytes: guestshares.DiskBytes, BytesPerSecond: guestshares.DiskBytesPerSecond}},
		Modules: []string{"ext4", "bfq"},
		Give:    []vm.Give{{Host: "mke2fs"}},
	})
}
