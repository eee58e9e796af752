package main

import (
	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/volume"
)

// completeNames completes the name of a volume as the first argument.
func (f *volumeFlags) completeNames(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for _, pool := range f.completePools(cmd) {
		found, _ := pool.Names()
		for _, name := range found {
			names = append(names, cobra.CompletionWithDesc(name, "in "+pool.Dir()))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeSnapshots completes a volume, and then one of its snapshots.
func (f *volumeFlags) completeSnapshots(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return f.snapshotsOf(cmd, args[0]), cobra.ShellCompDirectiveNoFileComp
	}
	return f.completeNames(cmd, args, word)
}

// completeSnapshotFlag completes a flag that names a snapshot of the volume
// that is the first argument.
func (f *volumeFlags) completeSnapshotFlag(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.snapshotsOf(cmd, args[0]), cobra.ShellCompDirectiveNoFileComp
}

func (f *volumeFlags) snapshotsOf(cmd *cobra.Command, name string) []cobra.Completion {
	var names []cobra.Completion
	for _, pool := range f.completePools(cmd) {
		found, _ := pool.SnapshotNames(name)
		names = append(names, found...)
	}
	return names
}

// completePools opens what can be opened: completion fails in silence.
func (f *volumeFlags) completePools(cmd *cobra.Command) []*volume.Pool {
	if dir := f.named(); dir != "" {
		if pool, err := volume.Open(cmd.Context(), dir, volume.PoolOptions{}); err == nil {
			return []*volume.Pool{pool}
		}
		return nil
	}
	pools, _ := f.registry().Pools(cmd.Context(), volume.PoolOptions{})
	return pools
}
