package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/paper1/guestshares"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/kernels"
)

func newGuestsIOCostCommand() *cobra.Command {
	b := &bench{name: "guests-io-cost"}
	var names, dividers []string
	repetitions := 4
	cmd := &cobra.Command{
		Use:   "guests-io-cost",
		Short: "Measure shares under io.cost in guests that count instructions",
		Long: `Guests-io-cost boots Debian's kernels under QEMU, all at the same time, with clocks that
count instructions, so that the host's load matters little. In each it runs 50:50 and 70:30
on a disk in memory with a limited rate under io.cost, uncontrolled and under the feedback
law, 60 s of the guest's time each, several times: with a model of the whole disk and a
period of 1 ms, and with the settings that daybook calibrate proposes. It fails if, under
control, in any run a mean share is more than 1.5 points off its target, an interval of 5 s
after the third is more than 3 points off, or the throughput is below 0.97 of the
uncontrolled one. It takes 6 to 12 minutes for each repetition on an idle host.`,
		Example: "  daybook-bench guests-io-cost --docs docs/results\n  daybook-bench guests-io-cost --quick --kernels 6.12",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked := extent(b, guestshares.Full, guestshares.Quick)
			asked.Boot, asked.Kernels, asked.Dividers, asked.CountInstructions = bootCounting, names, dividers, true
			for _, divider := range dividers {
				if !slices.Contains(costDividers, divider) {
					return fmt.Errorf("no divider %q: choose from %s", divider, strings.Join(costDividers, ", "))
				}
			}
			if repetitions < 1 {
				return fmt.Errorf("--repetitions %d: want at least 1", repetitions)
			}
			if !b.quick || cmd.Flags().Changed("repetitions") {
				asked.Repetitions = repetitions
			}
			return measure(b, cmd, func(ctx context.Context, lab fixture.Lab) (guestshares.Result, error) {
				return guestshares.Bench(ctx, lab, asked)
			})
		},
	}
	b.flags(cmd)
	cmd.Flags().StringSliceVar(&names, "kernels", kernels.Names(), "comma-separated `NAMES` of kernels")
	cmd.Flags().StringSliceVar(&dividers, "dividers", costDividers, "comma-separated `NAMES` of the setups of io.cost")
	cmd.Flags().IntVar(&repetitions, "repetitions", repetitions, "the `NUMBER` of runs of each scenario (--quick: 1 unless given)")
	return cmd
}

// costDividers are the setups of io.cost.
var costDividers = []string{fixture.IOCost, fixture.IOCostProposed}

// countingBootTimeout is for busy hosts: such a guest has one emulated processor.
const countingBootTimeout = 10 * time.Minute

// bootCounting boots a guest whose clocks count instructions, for disks in memory.
func bootCounting(ctx context.Context, kernel string) (guestshares.Guest, error) {
	return boot[guestshares.Case, scenario.Phase](ctx, "guests", vm.Config{
		Kernel: kernel, CountInstructions: true, CPUs: 1, MemoryBytes: guestshares.MemoryDiskBytes + vm.DefaultMemoryBytes, BootTimeout: countingBootTimeout,
		Modules: []string{"ext4", "configfs", "null_blk"}, Append: "null_blk.nr_devices=0", Give: []vm.Give{{Host: "mke2fs"}},
	})
}
