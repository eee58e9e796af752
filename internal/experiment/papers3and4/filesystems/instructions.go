package filesystems

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// Instructions has how many instructions an emulated processor executes for an operation.
type Instructions struct {
	Host   report.Host `json:"host"`
	Kernel string      `json:"guest_kernel"`
	Rounds int         `json:"rounds"`
	// Milliseconds and CreateFiles are as in the options.
	Milliseconds int               `json:"milliseconds"`
	CreateFiles  int               `json:"create_files"`
	Runs         []InstructionsRun `json:"runs"`
}

// InstructionsRun is a load with one thread on an arrangement.
type InstructionsRun struct {
	Load         string            `json:"load"`
	Arrangement  string            `json:"arrangement"`
	PerOperation statistics.Spread `json:"instructions_per_operation"`
}

// FullInstructions is the count, QuickInstructions a short one that tests it.
var (
	FullInstructions = Options{
		Parts: Parts()[:2], Arrangements: []string{StockDisk, StockPmem, NVJOne, NVJEight},
		Threads: []int{1}, Rounds: 3, Milliseconds: 200, CreateFiles: 3072,
	}
	QuickInstructions = Options{
		Parts: Parts()[:2], Arrangements: []string{StockDisk, NVJOne},
		Threads: []int{1}, Rounds: 1, Milliseconds: 100, CreateFiles: 512,
	}
)

// CountInstructions counts in one boot. The guest that o.Boot boots has persistent memory
// for each arrangement, one processor, whose instructions its clocks count, and the module
// null_blk; it needs no disks.
func CountInstructions(ctx context.Context, o Options) (result Instructions, err error) {
	result = Instructions{Host: report.ThisHost(), Rounds: o.Rounds, Milliseconds: o.Milliseconds, CreateFiles: o.CreateFiles}
	if err := o.Check(); err != nil {
		return result, err
	}
	progress := func(string) {}
	if o.Progress != nil {
		progress = o.Progress
	}
	c := Case{
		Disk: "memory", Arrangements: o.Arrangements, Threads: []int{1}, Rounds: o.Rounds,
		Milliseconds: o.Milliseconds, CreateFiles: o.CreateFiles, Uncounted: true, Instructions: true,
	}
	for _, part := range o.Parts {
		c.Loads = append(c.Loads, part.Load)
	}
	progress("booting")
	g, err := o.Boot(ctx, nil, o.Arrangements)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	result.Kernel = g.Kernel()
	samples, err := g.Run(ctx, c, progress)
	if err != nil {
		return result, err
	}
	for _, load := range c.Loads {
		for _, arrangement := range c.Arrangements {
			var values []float64
			for _, s := range samples {
				if s.Load == load && s.Arrangement == arrangement && s.Result.Operations > 0 && s.Instructions > 0 {
					values = append(values, float64(s.Instructions)/float64(s.Result.Operations))
				}
			}
			if len(values) != o.Rounds {
				return result, fmt.Errorf("%s, %s: the guest returned %d counts; want %d", load, arrangement, len(values), o.Rounds)
			}
			result.Runs = append(result.Runs, InstructionsRun{load, arrangement, statistics.SpreadOf(values)})
		}
	}
	return result, nil
}

// fewest is the smallest median of the module's arrangements, or of the kernel's own ext4.
// NaN: none was counted.
func (n Instructions) fewest(load string, module bool) float64 {
	fewest := math.NaN()
	for _, run := range n.Runs {
		if run.Load != load || (mountOptions(run.Arrangement) != "") != module {
			continue
		}
		if math.IsNaN(fewest) || run.PerOperation.Median < fewest {
			fewest = run.PerOperation.Median
		}
	}
	return fewest
}

// Check returns an error for each load for which ext4nvj executes more instructions than
// the kernel's own ext4.
func (n Instructions) Check() error {
	var errs []error
	for _, load := range Loads() {
		if ours, stock := n.fewest(load, true), n.fewest(load, false); ours > stock {
			errs = append(errs, fmt.Errorf("%s: ext4nvj executes %.0f instructions an operation, stock ext4 %.0f", load, ours, stock))
		}
	}
	return errors.Join(errs...)
}

// Report returns the counts as a table.
func (n Instructions) Report() (report.Report, error) {
	if len(n.Runs) == 0 {
		return report.Report{}, errors.New("nothing was counted, so there is no report")
	}
	table := report.Table{
		Title:   "Executed instructions of an operation, one thread",
		Columns: []string{"file system", "load", "instructions", "range", "over the best stock ext4"},
		Note: "All that the processor executes in a run, from its start to the end of its last fsync: of the program, in the kernel, and of the journal's threads. " +
			"Medians and ranges of the rounds. Target: ext4nvj executes no more than stock ext4.",
	}
	for _, run := range n.Runs {
		ratio := "–"
		if stock := n.fewest(run.Load, false); !math.IsNaN(stock) {
			ratio = fmt.Sprintf("%.3f×", run.PerOperation.Median/stock)
		}
		table.Rows = append(table.Rows, []string{
			titleOf(run.Arrangement), run.Load, fmt.Sprintf("%.0f", run.PerOperation.Median),
			fmt.Sprintf("%.0f to %.0f", run.PerOperation.Low, run.PerOperation.High), ratio,
		})
	}
	return report.Report{
		Title: "ext4nvj: executed instructions",
		Lead: []string{fmt.Sprintf("A guest (Linux %s) with one emulated processor, whose clocks count instructions (QEMU, `-icount shift=0`). Each file system is on a disk in memory (null_blk), which completes each request at once: so the processor is never idle. "+
			"Each of %d rounds has %d files of create and %d million instructions of varmail; one round before them warms up. Misses of caches, lines that move between processors, and the time of persistent memory cost nothing here.", n.Kernel, n.Rounds, n.CreateFiles, n.Milliseconds)},
		Tables: []report.Table{table}, Host: n.Host,
	}, nil
}

// memoryDisk is the node of the disk of an arrangement.
func memoryDisk(n int) string { return "/dev/daybook-disk" + strconv.Itoa(n) }

// memoryDisks makes a disk in memory for each arrangement.
func (c Case) memoryDisks() (remove func() error, err error) {
	var undo []func() error
	remove = func() error {
		var errs []error
		for _, one := range slices.Backward(undo) {
			errs = append(errs, one())
		}
		return errors.Join(errs...)
	}
	for n := range c.Arrangements {
		one, err := fixture.MakeMemoryDisk(memoryDisk(n), DiskBytes, 0)
		if err != nil {
			return nil, errors.Join(err, remove())
		}
		undo = append(undo, one)
	}
	return remove, postponeWriteback()
}

// mostIdle is how much of a run the processor may be idle. While it is, the clocks jump.
const mostIdle = 0.001

// executed calls run, and returns how many instructions the guest executed meanwhile.
func executed(run func() (LoadResult, error)) (result LoadResult, instructions uint64, err error) {
	before, err := idleNanoseconds()
	if err != nil {
		return result, 0, err
	}
	if result, err = run(); err != nil {
		return result, 0, err
	}
	after, err := idleNanoseconds()
	if err != nil {
		return result, 0, err
	}
	if idle := float64(after-before) / 1e9; idle > mostIdle*result.Seconds {
		return result, 0, fmt.Errorf("the processor was idle for %.6f of %.6f s, so its clock does not count instructions", idle, result.Seconds)
	}
	return result, uint64(result.Seconds * 1e9), nil
}

var idleTime = regexp.MustCompile(`\.idle_sleeptime *: *(\d+) nsecs`)

// idleNanoseconds returns how long the processor of the guest was idle since its boot, and
// always 0 if the kernel does not say it: 7.2 and 7.3 do not, 6.1 and 6.12 do.
func idleNanoseconds() (uint64, error) {
	const file = "/proc/timer_list"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	found := idleTime.FindAllSubmatch(text, -1)
	if len(found) == 0 {
		return 0, nil
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("%s has %d idle times; want one processor", file, len(found))
	}
	return strconv.ParseUint(string(found[0][1]), 10, 64)
}
