package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/daemon/overhead"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/kernels"
)

func newOverheadCommand() *cobra.Command {
	b := &bench{name: "overhead", unjudged: true}
	options := overhead.Options{Extent: overhead.Extent{Pairs: 400, Scale: 1}, GuestPairs: 11, Boot: bootCountingGuest}
	cmd := &cobra.Command{
		Use:   "overhead",
		Short: "Measure the cost of the BPF programs for programs on the host",
		Long: `Overhead measures mkdir, creat and 4 KiB append+fsync with the BPF programs attached and
detached, in alternating windows: the executed instructions in guests, and the time on this
host, which should be idle. It also reads the cost of each BPF program from the kernel's
statistics. It fails if the whole range of an operation's cost is above 1 %.`,
		Example: `  daybook-bench overhead --quick
  daybook-bench overhead --kernels 6.12 --pairs 10`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.quick {
				options.Pairs, options.GuestPairs, options.Scale = min(3, options.Pairs), min(3, options.GuestPairs), 4
			}
			if options.Waits {
				b.variant("overhead-waits", `make bench-overhead BENCHFLAGS="--waits --pairs 0"`)
			}
			return measure(b, cmd, func(ctx context.Context, lab fixture.Lab) (overhead.Result, error) {
				return overhead.Run(ctx, lab, options)
			})
		},
	}
	b.flags(cmd)
	cmd.Flags().BoolVar(&options.Waits, "waits", false, "measure the programs of daybook blame in place of the daemon's")
	cmd.Flags().IntVar(&options.Pairs, "pairs", options.Pairs, "`NUMBER` of pairs of windows of each operation on the host; 0: measure in guests only")
	cmd.Flags().IntVar(&options.GuestPairs, "guest-pairs", options.GuestPairs, "`NUMBER` of pairs of windows of each operation in each guest")
	cmd.Flags().StringSliceVar(&options.Operations, "operations", nil, "comma-separated `NAMES` of operations (mkdir, creat, append+fsync); default: all")
	cmd.Flags().StringSliceVar(&options.Kernels, "kernels", kernels.Names(), "comma-separated `NAMES` of the guests' kernels; \"\": no guest")
	cmd.AddCommand(newPhaseCommand(overhead.RunInGuest))
	return cmd
}

// bootCountingGuest boots a kernel of the pin file whose clocks count instructions.
func bootCountingGuest(ctx context.Context, kernel string) (overhead.Guest, error) {
	return boot[overhead.Extent, overhead.Result](ctx, "overhead", vm.Config{
		Kernel:            kernel,
		CountInstructions: true,
		Modules:           []string{"ext4", "null_blk"},
		Give:              []vm.Give{{Host: "mke2fs"}},
	})
}
