package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/papers3and4/filesystems"
	"github.com/daybook-project/daybook/vm"
)

// countInstructions counts the instructions of an operation. rounds is 0 for the usual number.
func (b *bench) countInstructions(cmd *cobra.Command, source, module string, arrangements []string, rounds int) error {
	options := filesystems.FullInstructions
	if b.quick {
		options = filesystems.QuickInstructions
	}
	choose(&options.Arrangements, arrangements)
	if rounds > 0 {
		options.Rounds = rounds
	}
	files, err := findExt4NVJ(cmd, source, module, options)
	if err != nil {
		return err
	}
	b.variant("ext4nvj-instructions", "daybook-bench ext4nvj --instructions")
	options.Boot = func(ctx context.Context, _ []filesystems.Disk, arrangements []string) (filesystems.Guest, error) {
		return bootExt4NVJ(ctx, files.countingConfig(arrangements))
	}
	options.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ext4nvj: "+line) }
	result, err := filesystems.CountInstructions(cmd.Context(), options)
	if err != nil {
		return err
	}
	return b.finish(cmd, result, result.Report, result.Check)
}

// countingConfig is the guest whose clocks count instructions. Its disks are in its memory.
func (f ext4nvjFiles) countingConfig(arrangements []string) vm.Config {
	config := f.config(1, nil, arrangements)
	config.CountInstructions, config.BootTimeout = true, countingBootTimeout
	config.MemoryBytes += int64(len(arrangements)) * filesystems.DiskBytes
	config.Modules = append(config.Modules, "null_blk")
	return config
}
