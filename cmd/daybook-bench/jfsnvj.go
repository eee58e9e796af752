package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/papers3and4/filesystems"
)

func newJFSNVJCommand() *cobra.Command {
	b := bench{name: "jfsnvj"}
	var source, kept string
	var only, arrangements []string
	var threads []int
	var rounds int
	cmd := &cobra.Command{
		Use:   "jfsnvj",
		Short: "Compare jfsnvj with stock JFS on this host's processors",
		Long: `Jfsnvj repeats figures 4 and 5 of paper 4. It runs Linux 7.2 as a program of this host
(User Mode Linux), so that its code runs on the host's processors. There it runs the
operations of a mail server (varmail) and a program that makes files (create), with 1 to
16 threads, on

  - stock JFS with its log on the disk, and in the memory that jfsnvj uses for its journal,
  - jfsnvj with one and with eight partitions,
  - jfsnvj built like the paper's baseline: one lock, with records of whole pages.

The disks are null_blk devices with a latency of 0, 10 and 80 µs. It counts bytes,
flushes, fences and waits of each operation. Stock ext4 there is first compared with
ext4 of the host, because figures of a busy host are not valid. It takes about 5
minutes, and needs root, jfsutils, an idle host, nvj (make nvjournal) and
nvjournal/kernel/native/build.`,
		Example: `  daybook-bench jfsnvj --docs docs/results

  # One part; the other parts in --output stay unchanged
  daybook-bench jfsnvj --only 10us/varmail --docs docs/results`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kept != "" {
				return again[filesystems.Result](b, cmd, kept)
			}
			options := filesystems.FullJFS
			if b.quick {
				options = filesystems.QuickJFS
			}
			if len(threads) > 0 {
				options.Threads = threads
			}
			if rounds > 0 {
				options.Rounds = rounds
			}
			choose(&options.Arrangements, arrangements)
			var err error
			if options.Parts, err = ext4nvjParts(options.Parts, only); err != nil {
				return err
			}
			if len(only)+len(threads)+len(arrangements) > 0 {
				if err := b.before(&options.Before); err != nil {
					return err
				}
			}
			files, err := findExt4NVJ(cmd, source, "", options)
			if err != nil {
				return err
			}
			options.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "jfsnvj: "+line) }
			result, err := measureNative(cmd, files, source, options)
			if err != nil {
				return b.notComplete(result, err)
			}
			return b.finish(cmd, result, result.Report, result.Check)
		},
	}
	b.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&source, "source", "nvjournal", "`DIR` with the sources of nvj, the module and the load program")
	flags.StringVar(&kept, "again", "", "measure nothing; write the page from the figures in `FILE`")
	flags.StringSliceVar(&only, "only", nil, "measure only these `PARTS`, DISK or DISK/LOAD: disks "+
		strings.Join(filesystems.NativeDiskNames(), ", ")+", loads "+strings.Join(filesystems.Loads(), ", "))
	flags.StringSliceVar(&arrangements, "arrangements", nil, "measure only these `ARRANGEMENTS`: "+strings.Join(filesystems.JFSArrangements(), ", "))
	flags.IntVar(&rounds, "rounds", 0, "the `NUMBER` of timed rounds (default: as in the full or quick form)")
	flags.IntSliceVar(&threads, "threads", nil, "measure only with these `NUMBERS` of threads")
	return cmd
}
