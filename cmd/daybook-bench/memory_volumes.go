package main

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/papers2to4/memoryvolumes"
)

func newMemoryVolumesCommand() *cobra.Command {
	b := &bench{name: "memory-volumes"}
	var source, kept, load string
	var arrangements, neighbours []string
	var rounds int
	cmd := &cobra.Command{
		Use:   "memory-volumes",
		Short: "Measure syncs on volumes whose journal is in memory, next to neighbours",
		Long: `Memory-volumes runs Linux 7.2 as a program of this host (User Mode Linux), with cgroup
v2, BFQ and a disk in memory. There a container appends to its log and calls fsync,
alone and next to a neighbour that writes: without fsync, with few or many calls of
fsync, or under a limit. Both are on

  - one ext4, with dioread_nolock and with nodioread_nolock,
  - a volume each, with each jbd2 thread in its container's cgroup,
  - a volume each, the container's with its journal in memory, without and with its data.

With --load mariadb, the container is MariaDB, into which clients insert rows.

With --arrangements or --neighbours, the figures are in memory-volumes-selection.json.

It fails if the p99 of a sync on a volume with its journal in memory is more than 1.2
times that without the neighbour right before and after, or if such a volume does not
make 3.4 and 1.5 times the syncs of the shared ext4. It takes about 12 minutes, with
MariaDB longer. It needs an idle host, the command nvj (make nvjournal) and
nvjournal/kernel/native/build; for MariaDB also mariadbd and sysbench.`,
		Example: `  daybook-bench memory-volumes --docs docs/results
  daybook-bench memory-volumes --arrangements memory,memory-data --neighbours none,high-fsync
  daybook-bench memory-volumes --load mariadb --docs docs/results

  # Measure nothing; write the page again
  daybook-bench memory-volumes --again build/bench/memory-volumes.json --docs docs/results`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kept != "" {
				var result memoryvolumes.Result
				if err := b.readKept(kept, &result); err != nil {
					return err
				}
				selection := strings.HasSuffix(strings.TrimSuffix(strings.TrimSuffix(kept, ".json"), "-quick"), "-selection")
				if b.docs != "" && selection {
					return errors.New("--docs: the page has all arrangements and neighbours, and these figures are of a selection")
				}
				b.nameMemoryVolumes(result.Load, selection)
				return b.finish(cmd, result)
			}
			selection := len(arrangements)+len(neighbours) > 0
			if b.docs != "" && selection {
				return errors.New("--docs: the page has all arrangements and neighbours, and would lose those that are not measured now; omit --arrangements and --neighbours, or --docs")
			}
			b.nameMemoryVolumes(load, selection)
			options := extent(b, memoryvolumes.Full, memoryvolumes.Quick)
			options.Load = load
			choose(&options.Arrangements, arrangements)
			choose(&options.Neighbours, neighbours)
			if cmd.Flags().Changed("rounds") {
				options.Rounds = rounds
			}
			options.Progress = func(line string) { b.say(cmd, line) }
			err := options.Check()
			if err != nil {
				return err
			}
			if options.Kernel, err = memoryVolumesKernel(cmd, source); err != nil {
				return err
			}
			result, err := memoryvolumes.Bench(cmd.Context(), options)
			if err != nil {
				return err
			}
			return b.finish(cmd, result)
		},
	}
	b.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&source, "source", "nvjournal", "`DIR` with the sources of nvj and the native kernel")
	flags.StringVar(&kept, "again", "", "measure nothing; write the page from the figures in `FILE`")
	flags.StringVar(&load, "load", memoryvolumes.Writer, "the container's `LOAD`: "+strings.Join(memoryvolumes.Loads(), " or "))
	flags.StringSliceVar(&arrangements, "arrangements", nil, "measure only these `ARRANGEMENTS`: "+strings.Join(memoryvolumes.Arrangements(), ", "))
	flags.StringSliceVar(&neighbours, "neighbours", nil, "measure only next to these `NEIGHBOURS`: "+strings.Join(memoryvolumes.Neighbours(), ", "))
	flags.IntVar(&rounds, "rounds", 0, "the `NUMBER` of rounds (default: as in the full or quick form)")
	cmd.AddCommand(newNativeInitCommand(memoryvolumes.InitNative))
	return cmd
}

// nameMemoryVolumes gives the results of MariaDB a page and figures of their own, and those of
// a selection of the arrangements or neighbours figures of their own.
func (b *bench) nameMemoryVolumes(load string, selection bool) {
	if load == memoryvolumes.MariaDB {
		b.variant("memory-volumes-mariadb", `make bench-memory-volumes BENCHFLAGS="--load mariadb"`)
	}
	if selection {
		b.figures(b.name + "-selection")
	}
}

// memoryVolumesKernel builds the kernel, and finds the program nvj.
func memoryVolumesKernel(cmd *cobra.Command, source string) (k memoryvolumes.Kernel, err error) {
	if k.NVJDirectory, err = filepath.Abs(filepath.Join(source, "build")); err != nil {
		return k, err
	}
	k.Kernel, err = nativeKernel(cmd, source, "cgroups")
	return k, err
}
