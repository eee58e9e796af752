package memoryvolumes

import (
	"context"
	"fmt"

	"github.com/daybook-project/daybook/internal/experiment/native"
	"github.com/daybook-project/daybook/internal/experiment/report"
)

// Kernel is the native kernel, and the directory of the program nvj.
type Kernel struct {
	native.Kernel
	NVJDirectory string
}

// nativeCase is what the first process of a kernel reads: the measurements in one kernel.
type nativeCase struct {
	Load              string   `json:"load"`
	Arrangement       string   `json:"arrangement"`
	Neighbours        []string `json:"neighbours"`
	Syncs             uint64   `json:"syncs"`
	LeastMilliseconds int      `json:"least_milliseconds"`
	MostMilliseconds  int      `json:"most_milliseconds"`
	Modules           string   `json:"modules"`
	NVJDirectory      string   `json:"nvj_directory"`
}

// nativeLine is a value that it writes: one of these.
type nativeLine struct {
	Sample   *Sample `json:"sample,omitempty"`
	Progress string  `json:"progress,omitempty"`
	// Settings are those of the scheduler, as text.
	Settings string `json:"settings,omitempty"`
}

// Bench measures. It starts a kernel for each round of each arrangement.
func Bench(ctx context.Context, o Options) (result Result, err error) {
	result = Result{Host: report.ThisHost(), CPUs: report.ThisHost().CPUs, Rounds: o.Rounds, Load: o.Load}
	if err := o.Check(); err != nil {
		return result, err
	}
	if result.Kernel, err = o.Kernel.Release(); err != nil {
		return result, err
	}
	progress := func(string) {}
	if o.Progress != nil {
		progress = o.Progress
	}
	var samples []Sample
	for round := range o.Rounds {
		for n := range o.Arrangements {
			// Each round starts with another arrangement.
			arrangement := o.Arrangements[(n+round)%len(o.Arrangements)]
			what := fmt.Sprintf("round %d of %d, %s: ", round+1, o.Rounds, arrangement)
			progress(what + "booting")
			syncs := o.Syncs
			if inMemory(arrangement) {
				syncs = o.JudgedSyncs
			}
			c := nativeCase{
				Load: o.Load, Arrangement: arrangement, Neighbours: o.Neighbours, Syncs: syncs, LeastMilliseconds: o.LeastMilliseconds, MostMilliseconds: o.MostMilliseconds,
				Modules: o.Kernel.Modules, NVJDirectory: o.Kernel.NVJDirectory,
			}
			err := native.Run(ctx, o.Kernel.Kernel, machine(), c, func(line nativeLine) {
				switch {
				case line.Sample != nil:
					samples = append(samples, *line.Sample)
				case line.Settings != "":
					result.Settings = line.Settings
				default:
					progress(what + line.Progress)
				}
			})
			if err != nil {
				return result, fmt.Errorf("%s: %w", arrangement, err)
			}
		}
	}
	result.Runs, err = runs(o, samples)
	return result, err
}

// machine is the kernel's memory, disk and region.
func machine() native.Machine {
	return native.Machine{
		MemoryBytes: 4 << 30,
		Parameters: []string{
			fmt.Sprintf("reserve_mem=%dM:4096:memory", regionBytes>>20),
			"null_blk.nr_devices=1", "null_blk.memory_backed=1", "null_blk.bs=4096", fmt.Sprintf("null_blk.gb=%d", diskBytes>>30),
			"null_blk.submit_queues=1", "null_blk.hw_queue_depth=1", fmt.Sprintf("null_blk.max_sectors=%d", requestBytes/512),
			"null_blk.irqmode=2", fmt.Sprintf("null_blk.completion_nsec=%d", requestNanoseconds),
		},
		Init: []string{"memory-volumes", "native-init"},
	}
}
