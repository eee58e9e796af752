package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/papers3and4/filesystems"
	"github.com/daybook-project/daybook/vm"
)

// countInstructions counts the instructions of an operation.
func (f *filesystemsFlags) countInstructions(cmd *cobra.Command, b *bench) error {
	options := extent(b, filesystems.FullInstructions, filesystems.QuickInstructions)
	choose(&options.Arrangements, f.arrangements)
	if cmd.Flags().Changed("rounds") {
		options.Rounds = f.rounds
	}
	files, err := f.find(cmd, options)
	if err != nil {
		return err
	}
	b.variant("ext4nvj-instructions", "daybook-bench ext4nvj --instructions")
	options.Boot = func(ctx context.Context, _ []filesystems.Disk, arrangements []string) (filesystems.Guest, error) {
		return bootExt4NVJ(ctx, files.countingConfig(arrangements))
	}
	options.Progress = func(line string) { b.say(cmd, line) }
	result, err := filesystems.CountInstructions(cmd.Context(), options)
	if err != nil {
		return err
	}
	return b.finish(cmd, result)
}

// countingConfig is the guest whose clocks count instructions. Its disks are in its memory.
func (f filesystemFiles) countingConfig(arrangements []string) vm.Config {
	config := f.config(1, nil, arrangements)
	config.CountInstructions, config.BootTimeout = true, countingBootTimeout
	config.MemoryBytes += int64(len(arrangements)) * filesystems.DiskBytes
	config.Modules = append(config.Modules, "null_blk")
	return config
}
