package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/papers3and4/filesystems"
	"github.com/daybook-project/daybook/vm"
)

// ext4nvjKernel is the kernel of the guest.
const ext4nvjKernel = "6.1"

func newExt4NVJCommand() *cobra.Command {
	b := bench{name: "ext4nvj"}
	var source, module, kept string
	var only, arrangements []string
	var threads []int
	var native, underKVM, instructions bool
	var rounds int
	cmd := &cobra.Command{
		Use:   "ext4nvj",
		Short: "Compare ext4nvj with stock ext4 in a guest",
		Long: `Ext4nvj boots a guest with Linux 6.1, disks and persistent memory. There it runs the
operations of a mail server (varmail) and a program that makes files (create), with 1 to
16 threads, on

  - stock ext4 with its journal on the disk and on persistent memory,
  - ext4nvj with one and with eight partitions,
  - ext4nvj built like the papers' baselines: one lock, with records of blocks and of lines.

The disks are as fast as memory; for varmail there is also a throttled one. It counts
bytes, flushes, fences and waits of each operation, and fails if a target is missed. It
takes about 10 minutes, and needs the module (make kernel) and nvj (make nvjournal).

If KVM works, the guest has all processors of the host, and the results are named
ext4nvj-kvm. Otherwise two processors are emulated; with --kvm this is an error.

With --native, the kernel is Linux 7.2 as a program of this host (User Mode Linux), so
that its code runs on the host's processors. The disks are null_blk devices with a
latency of 0, 10 and 80 µs. Stock ext4 there is first compared with ext4 of the host. It
needs root, an idle host, and nvjournal/kernel/native/build.

With --instructions, it counts the instructions that an emulated processor executes for an
operation, with one thread and disks in memory: on a busy host, too. It fails if ext4nvj
executes more than stock ext4.`,
		Example: `  daybook-bench ext4nvj --docs docs/results

  # One part, in 4 minutes or less; the other parts in --output stay unchanged
  daybook-bench ext4nvj --only throttled/varmail --docs docs/results

  # On this host's processors
  daybook-bench ext4nvj --native --docs docs/results
  daybook-bench ext4nvj --kvm --docs docs/results

  # Executed instructions
  daybook-bench ext4nvj --instructions

  # Without the module
  daybook-bench ext4nvj --quick --arrangements ext4,ext4-pmem --output /tmp/stock.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if instructions {
				return b.countInstructions(cmd, source, module, arrangements, rounds)
			}
			if kept != "" {
				var result filesystems.Result
				if err := read(kept, &result); err != nil {
					return err
				}
				b.nameExt4NVJ(result.Native != nil, result.KVM)
				return b.finishExt4NVJ(cmd, result)
			}
			options := filesystems.Full
			switch {
			case native && b.quick:
				options = filesystems.QuickNative
			case native:
				options = filesystems.FullNative
			case b.quick:
				options = filesystems.Quick
			}
			var err error
			if !native {
				if options.CPUs, options.KVM, err = vm.Processors(cmd.Context(), ext4nvjKernel); err != nil {
					return err
				}
				if underKVM && !options.KVM {
					return errors.New("--kvm: KVM does not work on this host: a guest's kernel did not run in it")
				}
			}
			b.nameExt4NVJ(native, options.KVM)
			if len(threads) > 0 {
				options.Threads = threads
			}
			choose(&options.Arrangements, arrangements)
			if options.Parts, err = ext4nvjParts(options.Parts, only); err != nil {
				return err
			}
			if len(only)+len(threads)+len(arrangements) > 0 {
				if err := b.before(&options.Before); err != nil {
					return err
				}
			}
			files, err := findExt4NVJ(cmd, source, module, options)
			if err != nil {
				return err
			}
			options.Boot = func(ctx context.Context, disks []filesystems.Disk, arrangements []string) (filesystems.Guest, error) {
				return bootExt4NVJ(ctx, files.config(options.CPUs, disks, arrangements))
			}
			options.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ext4nvj: "+line) }
			if rounds > 0 {
				options.Rounds = rounds
			}
			if native {
				return b.ext4nvjNative(cmd, files, source, options)
			}
			result, err := filesystems.Bench(cmd.Context(), options)
			if err != nil {
				return err
			}
			return b.finishExt4NVJ(cmd, result)
		},
	}
	b.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&source, "source", "nvjournal", "`DIR` with the sources of nvj, the module and the guest's load program")
	flags.StringVar(&module, "module", "", "`FILE` of the module (default: the one that make kernel built in --source)")
	flags.StringVar(&kept, "again", "", "measure nothing; write the page from the figures in `FILE`")
	flags.StringSliceVar(&only, "only", nil, "measure only these `PARTS` in one boot, DISK or DISK/LOAD: disks "+
		strings.Join(filesystems.DiskNames(), ", ")+", loads "+strings.Join(filesystems.Loads(), ", "))
	flags.StringSliceVar(&arrangements, "arrangements", nil, "measure only these `ARRANGEMENTS`: "+strings.Join(filesystems.Arrangements(), ", "))
	flags.BoolVar(&native, "native", false, "measure on this host's processors, in User Mode Linux")
	flags.BoolVar(&underKVM, "kvm", false, "fail unless the host's processors run the guest (KVM)")
	flags.IntVar(&rounds, "rounds", 0, "the `NUMBER` of timed rounds (default: as in the full or quick form)")
	flags.IntSliceVar(&threads, "threads", nil, "measure only with these `NUMBERS` of threads")
	flags.BoolVar(&instructions, "instructions", false, "count executed instructions instead of measuring time")
	cmd.MarkFlagsMutuallyExclusive("native", "kvm", "instructions")
	for _, other := range []string{"again", "only", "threads"} {
		cmd.MarkFlagsMutuallyExclusive("instructions", other)
	}
	cmd.AddCommand(newPhaseCommand(filesystems.RunInGuest), newNativeInitCommand(filesystems.InitNative))
	return cmd
}

// nameExt4NVJ gives results of different kernels different names, unless the user chose a
// name for them.
func (b *bench) nameExt4NVJ(native, underKVM bool) {
	name := b.name
	switch {
	case native:
		name += "-native"
	case underKVM:
		name += "-kvm"
	}
	b.figures(name)
	if !native { // the page of emulated figures has a part for the native ones
		b.name = name
	}
}

// ext4nvjNative measures in User Mode Linux.
func (b *bench) ext4nvjNative(cmd *cobra.Command, files ext4nvjFiles, source string, options filesystems.Options) error {
	result, err := measureNative(cmd, files, source, options)
	if err != nil {
		return b.notComplete(result, err)
	}
	return b.finishExt4NVJ(cmd, result)
}

// measureNative builds the native kernel and measures in it. With an error, the result has
// what was measured before.
func measureNative(cmd *cobra.Command, files ext4nvjFiles, source string, options filesystems.Options) (result filesystems.Result, err error) {
	if os.Geteuid() != 0 {
		return result, errors.New("want root: the sanity check mounts a loop device")
	}
	native := filesystems.Native{Load: files.load, NVJ: files.nvj}
	for _, path := range []*string{&native.Load, &native.NVJ} {
		if *path, err = filepath.Abs(*path); err != nil {
			return result, err
		}
	}
	if native.Kernel, err = nativeKernel(cmd, source); err != nil {
		return result, err
	}
	var booted filesystems.Guest
	options.Boot = func(ctx context.Context, disks []filesystems.Disk, arrangements []string) (g filesystems.Guest, err error) {
		booted, err = native.Boot(ctx, disks, arrangements)
		return booted, err
	}
	if result, err = filesystems.Bench(cmd.Context(), options); err != nil {
		return result, err
	}
	return result, native.Complete(cmd.Context(), booted, &result, options.Rounds, options.Progress)
}

// notComplete returns the error of a measurement, and keeps what was measured before it,
// beside the figures of the last complete run.
func (b *bench) notComplete(result filesystems.Result, err error) error {
	if len(result.Runs) == 0 {
		return err
	}
	path := strings.TrimSuffix(b.output, ".json") + ".partial.json"
	if failed := saveTo(path, result); failed != nil {
		return errors.Join(err, failed)
	}
	return fmt.Errorf("%w; what was measured before is in %s", err, path)
}

// finishExt4NVJ is finish for one of the two parts of the page. The other part stays.
func (b *bench) finishExt4NVJ(cmd *cobra.Command, result filesystems.Result) error {
	if b.docs == "" || result.KVM {
		return b.finish(cmd, result, result.Report, result.Check)
	}
	path := b.page() + ".md"
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	part, page := filesystems.NativePart(string(before))
	if result.Native == nil {
		finished := b.finish(cmd, result, result.Report, result.Check)
		made, err := os.ReadFile(path)
		if err != nil {
			return errors.Join(finished, err)
		}
		return errors.Join(finished, write(path, []byte(filesystems.WithNativePart(string(made), part))))
	}
	docs := b.docs
	b.docs = ""
	finished := b.finish(cmd, result, result.Report, result.Check)
	b.docs = docs
	if part, err = result.NativeMarkdown(); err != nil {
		return errors.Join(finished, err)
	}
	return errors.Join(finished, write(path, []byte(filesystems.WithNativePart(page, part))))
}

// ext4nvjParts selects the parts that --only names: DISK/LOAD, or all parts of
// DISK.
func ext4nvjParts(all []filesystems.Part, only []string) ([]filesystems.Part, error) {
	if len(only) == 0 {
		return all, nil
	}
	var parts []filesystems.Part
	for _, text := range only {
		disk, load, both := strings.Cut(text, "/")
		if both {
			parts = append(parts, filesystems.Part{Disk: disk, Load: load})
			continue
		}
		if !slices.Contains(filesystems.DiskNames(), disk) {
			return nil, fmt.Errorf("--only %s: no such disk; choose of %s", text, strings.Join(filesystems.DiskNames(), ", "))
		}
		for _, part := range all {
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
func findExt4NVJ(cmd *cobra.Command, source, module string, options filesystems.Options) (f ext4nvjFiles, err error) {
	if err := runMake(cmd, "the guest's load program", filepath.Join(source, "kernel", "bench"), "-s"); err != nil {
		return f, err
	}
	f.load = filepath.Join(source, "build", "kernel-bench", "load")
	if !options.Native && !filesystems.NeedsModule(options.Arrangements) {
		return f, nil
	}
	f.nvj = filepath.Join(source, "build", "nvj")
	wanted := map[string]string{f.nvj: "make nvjournal"}
	if !options.Native { // its module is built with its kernel
		f.module = cmp.Or(module, filepath.Join(source, "kernel", "build", ext4nvjKernel, "ext4nvj.ko"))
		wanted[f.module] = "make kernel"
	}
	for path, target := range wanted {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && options.Native {
			return f, fmt.Errorf("there is no %s: %s", path, target)
		} else if errors.Is(err, fs.ErrNotExist) {
			return f, fmt.Errorf("there is no %s: %s, or measure stock ext4 alone: --arrangements %s,%s", path, target, filesystems.StockDisk, filesystems.StockPmem)
		} else if err != nil {
			return f, err
		}
	}
	return f, nil
}

// config is the guest with the disks and persistent memory of the arrangements.
func (f ext4nvjFiles) config(cpus int, disks []filesystems.Disk, arrangements []string) vm.Config {
	config := vm.Config{
		Kernel: ext4nvjKernel, CPUs: cpus, MemoryBytes: 2 * vm.DefaultMemoryBytes, Modules: []string{"ext4"},
		Give: []vm.Give{{Host: "mke2fs"}, {Host: "e2fsck"}, {Host: f.load, Guest: filesystems.LoadProgram}},
	}
	for _, d := range disks {
		for range arrangements {
			config.Disks = append(config.Disks, vm.Disk{SizeBytes: filesystems.DiskBytes, BytesPerSecond: d.BytesPerSecond, IOPS: d.IOPS})
		}
	}
	for range arrangements {
		config.Pmem = append(config.Pmem, vm.Pmem{SizeBytes: filesystems.JournalBytes})
	}
	if f.module != "" {
		config.Modules = append(config.Modules, f.module)
		config.Give = append(config.Give, vm.Give{Host: f.nvj, Guest: "/usr/bin/nvj"})
	}
	return config
}

func bootExt4NVJ(ctx context.Context, config vm.Config) (filesystems.Guest, error) {
	return boot[filesystems.Case, []filesystems.Sample](ctx, "ext4nvj", config)
}
