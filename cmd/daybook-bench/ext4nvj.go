package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/papers3and4/ext4nvj"
	"github.com/daybook-project/daybook/vm"
)

// ext4nvjKernel is the kernel of the guest.
const ext4nvjKernel = "6.1"

func newExt4NVJCommand() *cobra.Command {
	b := bench{name: "ext4nvj"}
	var source, module, kept string
	var only, arrangements []string
	var threads []int
	cmd := &cobra.Command{
		Use:   "ext4nvj",
		Short: "Compare ext4nvj with stock ext4 in a guest",
		Long: `Ext4nvj boots a guest with Linux 6.1, two processors, disks and persistent memory. In it, it
runs the operations of a mail server (varmail) and a program that makes files (create), with 1
to 16 threads, on

  - stock ext4 with its journal on the disk and on persistent memory,
  - ext4nvj with one and with eight partitions,
  - ext4nvj built like the papers' baselines: one lock, with records of blocks and of lines.

Disks are as fast as memory, and throttled (varmail). It counts bytes, flushes, fences and
waits of each operation, and fails if a target is missed. It takes about 10 minutes, and needs
the module (make kernel) and nvj (make nvjournal).`,
		Example: `  daybook-bench ext4nvj --docs docs/results

  # A part of it, 4 minutes or less; the others stay as they are in --output
  daybook-bench ext4nvj --only throttled/varmail --docs docs/results

  # Without the module
  daybook-bench ext4nvj --quick --arrangements ext4,ext4-pmem --output /tmp/stock.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kept != "" {
				return again[ext4nvj.Result](b, cmd, kept)
			}
			options := ext4nvj.Full
			if b.quick {
				options = ext4nvj.Quick
			}
			if len(threads) > 0 {
				options.Threads = threads
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
			files, err := findExt4NVJ(cmd, source, module, options.Arrangements)
			if err != nil {
				return err
			}
			options.Boot = files.boot
			options.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ext4nvj: "+line) }
			result, err := ext4nvj.Bench(cmd.Context(), options)
			if err != nil {
				return err
			}
			return b.finish(cmd, result, result.Report, result.Check)
		},
	}
	b.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&source, "source", "nvjournal", "`DIR` with the sources of nvj, the module and the guest's load program")
	flags.StringVar(&module, "module", "", "`FILE` of the module (default: the one that make kernel built in --source)")
	flags.StringVar(&kept, "again", "", "measure nothing; write the page from the figures in `FILE`")
	flags.StringSliceVar(&only, "only", nil, "measure only these `PARTS` in one boot, DISK or DISK/LOAD: disks "+
		strings.Join(ext4nvj.DiskNames(), ", ")+", loads "+strings.Join(ext4nvj.Loads(), ", "))
	flags.StringSliceVar(&arrangements, "arrangements", nil, "measure only these `ARRANGEMENTS`: "+strings.Join(ext4nvj.Arrangements(), ", "))
	flags.IntSliceVar(&threads, "threads", nil, "measure only with these `NUMBERS` of threads")
	cmd.AddCommand(newPhaseCommand(ext4nvj.RunInGuest))
	return cmd
}

// ext4nvjParts selects the parts that --only names: DISK/LOAD, or all parts of
// DISK.
func ext4nvjParts(all []ext4nvj.Part, only []string) ([]ext4nvj.Part, error) {
	if len(only) == 0 {
		return all, nil
	}
	var parts []ext4nvj.Part
	for _, text := range only {
		disk, load, both := strings.Cut(text, "/")
		if both {
			parts = append(parts, ext4nvj.Part{Disk: disk, Load: load})
			continue
		}
		if !slices.Contains(ext4nvj.DiskNames(), disk) {
			return nil, fmt.Errorf("--only %s: no such disk; choose of %s", text, strings.Join(ext4nvj.DiskNames(), ", "))
		}
		for _, part := range ext4nvj.Parts() {
			if part.Disk == disk {
				parts = append(parts, part)
			}
		}
	}
	return parts, nil
}

// ext4nvjFiles are the files that the guest needs.
type ext4nvjFiles struct{ load, nvj, module string }

// findExt4NVJ builds the load program and finds the files that the arrangements
// need.
func findExt4NVJ(cmd *cobra.Command, source, module string, arrangements []string) (f ext4nvjFiles, err error) {
	if err := runMake(cmd, "the guest's load program", filepath.Join(source, "kernel", "bench"), "-s"); err != nil {
		return f, err
	}
	f.load = filepath.Join(source, "build", "kernel-bench", "load")
	if !ext4nvj.NeedsModule(arrangements) {
		return f, nil
	}
	f.nvj = filepath.Join(source, "build", "nvj")
	f.module = cmp.Or(module, filepath.Join(source, "kernel", "build", ext4nvjKernel, "ext4nvj.ko"))
	for path, target := range map[string]string{f.nvj: "make nvjournal", f.module: "make kernel"} {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return f, fmt.Errorf("there is no %s: %s, or measure stock ext4 alone: --arrangements %s,%s", path, target, ext4nvj.StockDisk, ext4nvj.StockPmem)
		} else if err != nil {
			return f, err
		}
	}
	return f, nil
}

// boot starts the guest with the disks and persistent memory of the
// arrangements.
func (f ext4nvjFiles) boot(ctx context.Context, disks []ext4nvj.Disk, arrangements []string) (ext4nvj.Guest, error) {
	config := vm.Config{
		Kernel: ext4nvjKernel, MemoryBytes: 2 * vm.DefaultMemoryBytes, Modules: []string{"ext4"},
		Give: []vm.Give{{Host: "mke2fs"}, {Host: "e2fsck"}, {Host: f.load, Guest: ext4nvj.LoadProgram}},
	}
	for _, d := range disks {
		for range arrangements {
			config.Disks = append(config.Disks, vm.Disk{SizeBytes: ext4nvj.DiskBytes, BytesPerSecond: d.BytesPerSecond, IOPS: d.IOPS})
		}
	}
	for range arrangements {
		config.Pmem = append(config.Pmem, vm.Pmem{SizeBytes: ext4nvj.JournalBytes})
	}
	if f.module != "" {
		config.Modules = append(config.Modules, f.module)
		config.Give = append(config.Give, vm.Give{Host: f.nvj, Guest: "/usr/bin/nvj"})
	}
	machine, err := vm.Boot(ctx, config)
	if err != nil {
		return nil, err
	}
	return &guest{machine}, nil
}

func (g *guest) RunExt4NVJ(ctx context.Context, c ext4nvj.Case, got func(ext4nvj.Sample), tell func(line string)) error {
	out, err := g.phase(ctx, "ext4nvj", c, tell)
	if err != nil {
		return fmt.Errorf("%w; its console: %s", err, g.machine.Console())
	}
	decoder := json.NewDecoder(out)
	for decoder.More() {
		var sample ext4nvj.Sample
		if err := decoder.Decode(&sample); err != nil {
			return fmt.Errorf("cannot read the guest's result: %w", err)
		}
		got(sample)
	}
	return nil
}
