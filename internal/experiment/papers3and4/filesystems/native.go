package filesystems

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/native"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/kernel"
)

// Native runs a kernel as a program of the host (User Mode Linux), so that ext4nvj or
// jfsnvj and the kernel's own file system run on the host's processors.
type Native struct {
	Kernel native.Kernel
	// Load is the load program, NVJ the program nvj.
	Load, NVJ string
}

// NativeResult has what only the native measurement has.
type NativeResult struct {
	// WriteSeconds is the median time of a direct write of 4 KiB to a disk, by the name
	// of the disk.
	WriteSeconds map[string]float64 `json:"write_seconds"`
	// Sanity compares stock ext4 in User Mode Linux with the host's own.
	Sanity []Sanity `json:"sanity"`
}

// Sanity is a load on stock ext4 with one thread, on a loop device over tmpfs: of a
// program on the host, and of a thread of the kernel in User Mode Linux there.
type Sanity struct {
	Load                    string            `json:"load"`
	HostOperationsPerSecond statistics.Spread `json:"host_operations_per_second"`
	OperationsPerSecond     statistics.Spread `json:"operations_per_second"`
}

// MaxSlowdown is the largest factor by which stock ext4 in User Mode Linux may be slower
// than the host's, for the other figures to mean something.
const MaxSlowdown = 1.5

// Slowdown is the host's rate over that in User Mode Linux.
func (s Sanity) Slowdown() float64 {
	return s.HostOperationsPerSecond.Median / s.OperationsPerSecond.Median
}

// nativeMemoryBytes is the memory of a kernel with so many disks: their blocks, which stay in
// use once they are written, their journals, and room for all else. The kernel touches all of
// it before it measures.
func nativeMemoryBytes(disks int) int64 { return int64(disks)*(DiskBytes+JournalBytes) + 2<<30 }

// loopDisk names the disk of the sanity check.
const loopDisk = "loop"

// Boot returns a guest, which starts a kernel for each case.
func (n Native) Boot(_ context.Context, _ []Disk, _ []string) (Guest, error) {
	release, err := n.Kernel.Release()
	if err != nil {
		return nil, err
	}
	return &nativeGuest{Native: n, release: release, writes: map[string]float64{}}, nil
}

type nativeGuest struct {
	Native
	release string
	writes  map[string]float64
}

func (g *nativeGuest) Kernel() string { return g.release }
func (g *nativeGuest) Close() error   { return nil }

// nativeCase is what the first process in User Mode Linux reads.
type nativeCase struct {
	Case    Case   `json:"case"`
	Modules string `json:"modules"`
	// Path has the directory of nvj.
	Path string `json:"path"`
	// LoopBytes is the size of a loop device over tmpfs to use as the disk; 0: none.
	LoopBytes int64 `json:"loop_bytes"`
}

// nativeLine is a value that it writes: one of these.
type nativeLine struct {
	Sample       *Sample `json:"sample,omitempty"`
	Progress     string  `json:"progress,omitempty"`
	WriteSeconds float64 `json:"write_seconds,omitempty"`
}

func (g *nativeGuest) Run(ctx context.Context, c Case, progress func(line string)) (samples []Sample, err error) {
	c.FirstDisk = 0 // each case has a kernel of its own
	err = g.run(ctx, nativeCase{Case: c}, func(line nativeLine) {
		switch {
		case line.Sample != nil:
			samples = append(samples, *line.Sample)
		case line.Progress != "":
			progress(line.Progress)
		case line.WriteSeconds > 0:
			g.writes[c.Disk] = line.WriteSeconds
		}
	})
	return samples, err
}

// run starts a kernel, which runs a case and ends.
func (n Native) run(ctx context.Context, c nativeCase, got func(nativeLine)) error {
	c.Modules, c.Path = n.Kernel.Modules, filepath.Dir(n.NVJ)
	c.Case.LoadPath, c.Case.InKernel = n.Load, true
	memoryBytes := nativeMemoryBytes(len(c.Case.Arrangements))
	if available, known := kernel.AvailableMemory(); known && available < memoryBytes {
		return fmt.Errorf("a kernel with %d disks in memory needs %.1f GiB; this host has %.1f GiB available: measure fewer --arrangements at a time",
			len(c.Case.Arrangements), float64(memoryBytes)/(1<<30), float64(available)/(1<<30))
	}
	machine := native.Machine{MemoryBytes: memoryBytes, Parameters: c.parameters(), Init: []string{"ext4nvj", "native-init"}}
	return native.Run(ctx, n.Kernel, machine, c, got)
}

// parameters are those of the kernel's command line.
func (c nativeCase) parameters() []string {
	disks := len(c.Case.Arrangements)
	args := []string{
		fmt.Sprintf("reserve_mem=%dM:4096:memory", disks*JournalBytes>>20),
		"null_blk.nr_devices=" + strconv.Itoa(disks), "null_blk.memory_backed=1", "null_blk.bs=4096",
		"null_blk.gb=" + strconv.Itoa(DiskBytes>>30), "null_blk.submit_queues=" + strconv.Itoa(runtime.NumCPU()),
	}
	delay := int64(0)
	for _, d := range NativeDisks() {
		if d.Name == c.Case.Disk {
			delay = d.DelayNanoseconds
		}
	}
	if delay == 0 {
		return append(args, "null_blk.irqmode=0")
	}
	return append(args, "null_blk.irqmode=2", fmt.Sprintf("null_blk.completion_nsec=%d", delay))
}

// Complete measures what the result of Bench lacks: how long locks are held, and the sanity
// check. It needs root.
func (n Native) Complete(ctx context.Context, g Guest, result *Result, rounds int, progress func(line string)) error {
	if guest, ok := g.(*nativeGuest); ok {
		if result.Native.WriteSeconds == nil {
			result.Native.WriteSeconds = map[string]float64{}
		}
		for disk, seconds := range guest.writes {
			result.Native.WriteSeconds[disk] = seconds
		}
	}
	if err := n.completeHolds(ctx, result, progress); err != nil {
		return err
	}
	c := Case{
		Disk: loopDisk, Loads: Loads(), Arrangements: []string{StockDisk}, Threads: []int{1}, Rounds: rounds,
		Milliseconds: result.Milliseconds, CreateFiles: result.CreateFiles, CreateMilliseconds: result.CreateMilliseconds, Uncounted: true,
	}
	rates := map[bool]map[string][]float64{true: {}, false: {}}
	add := func(host bool, s Sample) {
		rates[host][s.Load] = append(rates[host][s.Load], float64(s.Result.Operations)/s.Result.Seconds)
	}
	progress("stock ext4 of the host, on a loop device over tmpfs")
	if err := n.onHost(ctx, c, func(s Sample) { add(true, s) }); err != nil {
		return fmt.Errorf("stock ext4 of the host: %w", err)
	}
	progress("stock ext4 in User Mode Linux, on a loop device over tmpfs")
	err := n.run(ctx, nativeCase{Case: c, LoopBytes: DiskBytes}, func(line nativeLine) {
		if line.Sample != nil {
			add(false, *line.Sample)
		}
	})
	if err != nil {
		return err
	}
	result.Native.Sanity = nil
	for _, load := range Loads() {
		result.Native.Sanity = append(result.Native.Sanity, Sanity{
			Load: load, HostOperationsPerSecond: statistics.SpreadOf(rates[true][load]), OperationsPerSecond: statistics.SpreadOf(rates[false][load]),
		})
	}
	return nil
}

// onHost measures the host's stock ext4.
func (n Native) onHost(ctx context.Context, c Case, got func(Sample)) (err error) {
	home, err := fixture.MakeHome()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(home)) }()
	directory := filepath.Join(home, "memory")
	if err := os.Mkdir(directory, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(directory)) }()
	disk, release, err := loopOverTmpfs(directory, DiskBytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	c.DiskPath, c.LoadPath = disk, n.Load
	return c.run(ctx, func(s Sample) error { got(s); return nil }, func(string) {})
}

// loopOverTmpfs mounts a tmpfs and attaches a file in it to a loop device.
func loopOverTmpfs(directory string, bytes int64) (node string, release func() error, err error) {
	if err := unix.Mount("none", directory, "tmpfs", 0, ""); err != nil {
		return "", nil, fmt.Errorf("cannot mount tmpfs on %s: %w", directory, err)
	}
	unmount := func() error { return unix.Unmount(directory, unix.MNT_DETACH) }
	path := filepath.Join(directory, "disk")
	file, err := os.Create(path)
	if err == nil {
		err = errors.Join(file.Truncate(bytes), file.Close())
	}
	if err != nil {
		return "", nil, errors.Join(err, unmount())
	}
	loop, err := blockdev.Attach(path, blockdev.AttachOptions{BlockSizeBytes: journalBlock})
	if err != nil {
		return "", nil, errors.Join(err, unmount())
	}
	return loop.Path(), func() error { return errors.Join(loop.Detach(context.Background()), unmount()) }, nil
}
