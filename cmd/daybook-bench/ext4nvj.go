package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/papers3and4/filesystems"
	"github.com/daybook-project/daybook/vm"
)

// ext4nvjKernel is the kernel of the guest.
const ext4nvjKernel = "6.1"

func newExt4NVJCommand() *cobra.Command {
	b := &bench{name: "ext4nvj"}
	var f filesystemsFlags
	var native, underKVM, instructions bool
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
			switch {
			case instructions:
				return f.countInstructions(cmd, b)
			case f.kept != "":
				var result filesystems.Result
				if err := b.readKept(f.kept, &result); err != nil {
					return err
				}
				b.nameExt4NVJ(result.Native != nil, result.KVM)
				return b.finishExt4NVJ(cmd, result)
			case native:
				b.nameExt4NVJ(true, false)
				result, err := f.measureNative(cmd, b, extent(b, filesystems.FullNative, filesystems.QuickNative))
				if err != nil {
					return err
				}
				return b.finishExt4NVJ(cmd, result)
			}
			return f.measureExt4NVJ(cmd, b, underKVM)
		},
	}
	b.flags(cmd)
	f.flags(cmd, filesystems.DiskNames(), filesystems.Arrangements())
	flags := cmd.Flags()
	flags.StringVar(&f.module, "module", "", "`FILE` of the module (default: the one that make kernel built in --source)")
	flags.BoolVar(&native, "native", false, "measure on this host's processors, in User Mode Linux")
	flags.BoolVar(&underKVM, "kvm", false, "fail unless the host's processors run the guest (KVM)")
	flags.BoolVar(&instructions, "instructions", false, "count executed instructions instead of measuring time")
	cmd.MarkFlagsMutuallyExclusive("native", "kvm", "instructions")
	for _, other := range []string{"again", "only", "threads"} {
		cmd.MarkFlagsMutuallyExclusive("instructions", other)
	}
	cmd.AddCommand(newPhaseCommand(filesystems.RunInGuest), newNativeInitCommand(filesystems.InitNative))
	return cmd
}

// measureExt4NVJ measures in a guest.
func (f *filesystemsFlags) measureExt4NVJ(cmd *cobra.Command, b *bench, underKVM bool) (err error) {
	options := extent(b, filesystems.Full, filesystems.Quick)
	if options.CPUs, options.KVM, err = vm.Processors(cmd.Context(), ext4nvjKernel); err != nil {
		return err
	}
	if underKVM && !options.KVM {
		return errors.New("--kvm: KVM does not work on this host: a guest's kernel did not run in it")
	}
	b.nameExt4NVJ(false, options.KVM)
	files, err := f.prepare(cmd, b, &options)
	if err != nil {
		return err
	}
	options.Boot = func(ctx context.Context, disks []filesystems.Disk, arrangements []string) (filesystems.Guest, error) {
		return bootExt4NVJ(ctx, files.config(options.CPUs, disks, arrangements))
	}
	result, err := filesystems.Bench(cmd.Context(), options)
	if err != nil {
		return err
	}
	return b.finishExt4NVJ(cmd, result)
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
	switch {
	case native:
		b.command = filesystems.NativeCommand
	case underKVM:
		b.command = "make bench-ext4nvj BENCHFLAGS=--kvm"
	}
	if !native { // the page of emulated figures has a part for the native ones
		b.name = name
	}
}

// finishExt4NVJ is finish for one of the two parts of the page. The other part stays.
func (b *bench) finishExt4NVJ(cmd *cobra.Command, result filesystems.Result) error {
	b.whole = func(report string) (string, error) {
		before, err := os.ReadFile(b.page() + ".md")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		part, page := filesystems.NativePart(string(before))
		if result.Native == nil {
			return filesystems.WithNativePart(report, part), nil
		}
		part, err = result.NativeMarkdown(b.made())
		return filesystems.WithNativePart(page, part), err
	}
	return b.finish(cmd, result)
}

// config is the guest with the disks and persistent memory of the arrangements.
func (f filesystemFiles) config(cpus int, disks []filesystems.Disk, arrangements []string) vm.Config {
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
