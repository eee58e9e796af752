package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/guestlvm"
	"github.com/daybook-project/daybook/vm"
)

func newGuestLVMCommand() *cobra.Command {
	b := &bench{name: "guest-lvm"}
	var options guestlvm.Options
	cmd := &cobra.Command{
		Use:   "guest-lvm",
		Short: "Compare thin and thick logical volumes beside a neighbour, in a guest",
		Long: `Guest-lvm boots a Debian kernel under QEMU and measures there how long the syncs of a
volume take while another volume is idle, syncs, or streams. It does so on thick logical
volumes and on thin ones of one thin pool, in turn, on a disk whose flushes take some
milliseconds. It checks no bound. It takes some 6 minutes and needs fio and lvm2
(scripts/setup bench).`,
		Example: `  daybook-bench guest-lvm --docs docs/results
  daybook-bench guest-lvm --quick`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Case, options.Boot = extent(b, guestlvm.Full.Case, guestlvm.Quick.Case), bootLVMGuest
			return measure(b, cmd, func(ctx context.Context, lab fixture.Lab) (guestlvm.Result, error) {
				return guestlvm.Bench(ctx, lab, options)
			})
		},
	}
	b.flags(cmd)
	// With 6.12, dm-delay polls while it holds back a flush, and takes the processor.
	cmd.Flags().StringVar(&options.Kernel, "kernel", "6.1", "`NAME` of the kernel")
	cmd.AddCommand(newPhaseCommand(guestlvm.RunInGuest))
	return cmd
}

// bootLVMGuest boots a kernel of the pin file with the experiment's disks.
func bootLVMGuest(ctx context.Context, kernel string) (guestlvm.Guest, error) {
	config := vm.Config{
		Kernel:      kernel,
		MemoryBytes: 2 * vm.DefaultMemoryBytes,
		Disks: []vm.Disk{
			{SizeBytes: guestlvm.DiskBytes, BytesPerSecond: guestlvm.DiskBytesPerSecond},
			{SizeBytes: guestlvm.PoolBytes},
		},
		Modules: []string{"ext4", "dm-mod", "dm-snapshot", "dm-thin-pool", "dm-delay"},
	}
	for _, name := range []string{
		"mke2fs", "e2fsck", "wipefs", "fio", "dmsetup", "thin_check", "lvm", "lvs", "vgs", "lvcreate", "lvchange", "lvremove", "pvcreate", "vgcreate",
	} {
		config.Give = append(config.Give, vm.Give{Host: name})
	}
	return boot[guestlvm.Case, []guestlvm.Sample](ctx, "guest-lvm", config)
}
