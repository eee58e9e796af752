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

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/papers3and4/filesystems"
)

// filesystemsFlags are those of the benchmarks of ext4nvj and of jfsnvj.
type filesystemsFlags struct {
	source, module, kept string
	only, arrangements   []string
	threads              []int
	rounds               int
}

func (f *filesystemsFlags) flags(cmd *cobra.Command, disks, arrangements []string) {
	flags := cmd.Flags()
	flags.StringVar(&f.source, "source", "nvjournal", "`DIR` with the sources of nvj, the module and the load program")
	flags.StringVar(&f.kept, "again", "", "measure nothing; write the page from the figures in `FILE`")
	flags.StringSliceVar(&f.only, "only", nil, "measure only these `PARTS`, DISK or DISK/LOAD: disks "+
		strings.Join(disks, ", ")+", loads "+strings.Join(filesystems.Loads(), ", "))
	flags.StringSliceVar(&f.arrangements, "arrangements", nil, "measure only these `ARRANGEMENTS`, and drop the others of the same parts and threads: "+strings.Join(arrangements, ", "))
	flags.IntVar(&f.rounds, "rounds", 0, "the `NUMBER` of timed rounds (default: as in the full or quick form)")
	flags.IntSliceVar(&f.threads, "threads", nil, "measure only with these `NUMBERS` of threads")
}

// prepare changes the options to what the user asked for, and finds the files that they
// need.
func (f *filesystemsFlags) prepare(cmd *cobra.Command, b *bench, o *filesystems.Options) (files filesystemFiles, err error) {
	if len(f.threads) > 0 {
		o.Threads = f.threads
	}
	if cmd.Flags().Changed("rounds") {
		o.Rounds = f.rounds
	}
	choose(&o.Arrangements, f.arrangements)
	if o.Parts, err = filesystemParts(*o, f.only); err != nil {
		return files, err
	}
	if len(f.only)+len(f.threads)+len(f.arrangements) > 0 {
		if err := b.before(&o.Before); err != nil {
			return files, err
		}
	}
	o.Progress = func(line string) { b.say(cmd, line) }
	return f.find(cmd, *o)
}

// filesystemParts selects the parts that --only names: DISK/LOAD, or all parts of
// DISK.
func filesystemParts(o filesystems.Options, only []string) ([]filesystems.Part, error) {
	if len(only) == 0 {
		return o.Parts, nil
	}
	var parts []filesystems.Part
	for _, text := range only {
		disk, load, both := strings.Cut(text, "/")
		if both {
			parts = append(parts, filesystems.Part{Disk: disk, Load: load})
			continue
		}
		if !slices.Contains(o.DiskNames(), disk) {
			return nil, fmt.Errorf("--only %s: no such disk; choose of %s", text, strings.Join(o.DiskNames(), ", "))
		}
		for _, part := range o.Parts {
			if part.Disk == disk {
				parts = append(parts, part)
			}
		}
	}
	return parts, nil
}

// filesystemFiles are the files that the guest needs.
type filesystemFiles struct{ load, nvj, module string }

// find builds the load program and finds the files that the arrangements
// need.
func (f *filesystemsFlags) find(cmd *cobra.Command, options filesystems.Options) (found filesystemFiles, err error) {
	if err := runMake(cmd, "the guest's load program", filepath.Join(f.source, "kernel", "bench"), "-s"); err != nil {
		return found, err
	}
	found.load = filepath.Join(f.source, "build", "kernel-bench", "load")
	if !options.Native && !filesystems.NeedsModule(options.Arrangements) {
		return found, nil
	}
	found.nvj = filepath.Join(f.source, "build", "nvj")
	wanted := map[string]string{found.nvj: "make nvjournal"}
	if !options.Native { // its module is built with its kernel
		found.module = cmp.Or(f.module, filepath.Join(f.source, "kernel", "build", ext4nvjKernel, "ext4nvj.ko"))
		wanted[found.module] = "make kernel"
	}
	for path, target := range wanted {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && options.Native {
			return found, fmt.Errorf("there is no %s: %s", path, target)
		} else if errors.Is(err, fs.ErrNotExist) {
			return found, fmt.Errorf("there is no %s: %s, or measure stock ext4 alone: --arrangements %s,%s", path, target, filesystems.StockDisk, filesystems.StockPmem)
		} else if err != nil {
			return found, err
		}
	}
	return found, nil
}

// measureNative measures in User Mode Linux. After an error it keeps what was measured.
func (f *filesystemsFlags) measureNative(cmd *cobra.Command, b *bench, options filesystems.Options) (filesystems.Result, error) {
	result, err := f.nativeResult(cmd, b, options)
	if err != nil {
		err = b.notComplete(result, err)
	}
	return result, err
}

// nativeResult builds the native kernel and measures in it. With an error, the result has
// what was measured before.
func (f *filesystemsFlags) nativeResult(cmd *cobra.Command, b *bench, options filesystems.Options) (result filesystems.Result, err error) {
	files, err := f.prepare(cmd, b, &options)
	if err != nil {
		return result, err
	}
	if os.Geteuid() != 0 {
		return result, errors.New("want root: the sanity check mounts a loop device")
	}
	if err := fixture.RemoveLeftovers(); err != nil {
		return result, err
	}
	native := filesystems.Native{Load: files.load, NVJ: files.nvj}
	for _, path := range []*string{&native.Load, &native.NVJ} {
		if *path, err = filepath.Abs(*path); err != nil {
			return result, err
		}
	}
	if native.Kernel, err = nativeKernel(cmd, f.source); err != nil {
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
	if failed := keep("the figures", path, result); failed != nil {
		return errors.Join(err, failed)
	}
	return fmt.Errorf("%w; what was measured before is in %s", err, path)
}
