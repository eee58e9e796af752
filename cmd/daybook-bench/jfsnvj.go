package main

import (
	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/papers3and4/filesystems"
)

func newJFSNVJCommand() *cobra.Command {
	b := &bench{name: "jfsnvj"}
	var f filesystemsFlags
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
			if f.kept != "" {
				return again[filesystems.Result](b, cmd, f.kept)
			}
			result, err := f.measureNative(cmd, b, extent(b, filesystems.FullJFS, filesystems.QuickJFS))
			if err != nil {
				return err
			}
			return b.finish(cmd, result)
		},
	}
	b.flags(cmd)
	f.flags(cmd, filesystems.NativeDiskNames(), filesystems.JFSArrangements())
	return cmd
}
