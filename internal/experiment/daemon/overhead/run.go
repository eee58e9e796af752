package overhead

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
)

// Options configure the measurement.
type Options struct {
	Extent
	// GuestPairs are the pairs of windows in each guest.
	GuestPairs int
	// Boot boots a kernel of that name, whose clocks count instructions.
	Boot func(ctx context.Context, kernel string) (Guest, error)
	// Kernels are those of the guests; none: no guest.
	Kernels []string
}

// Extent is how much is measured.
type Extent struct {
	// Pairs of windows, one with the programs attached and one with them detached; 0
	// measures nothing on the host.
	Pairs int `json:"pairs"`
	// Scale divides the calls of a window, 1 or more.
	Scale int `json:"scale"`
	// Waits measures the programs of package blame in place of those of the
	// daemon.
	Waits bool `json:"waits,omitempty"`
	// Operations are the names of the loads; none: all.
	Operations []string `json:"operations,omitempty"`
}

// diskModel is the model of the simulated disk.
const diskModel = "ssd"

// Result is the cost of the attached programs.
type Result struct {
	// Rows are those of the guests, in instructions, and those of the host, in
	// nanoseconds.
	Rows []Row `json:"rows"`
	// Programs' costs exclude that of the counting itself: on the host
	// ClockNanoseconds a run.
	Programs         []ProgramCost `json:"programs"`
	ClockNanoseconds float64       `json:"clock_nanoseconds"`
	// Waits is Extent.Waits.
	Waits bool        `json:"waits,omitempty"`
	Host  report.Host `json:"host"`
}

// Run measures in the guests, and then on the host.
func Run(ctx context.Context, l fixture.Lab, o Options) (result Result, err error) {
	result.Host, result.Waits = report.ThisHost(), o.Waits
	if o.Pairs < 0 || o.Scale < 1 || len(o.Kernels) > 0 && o.GuestPairs < 1 {
		return result, fmt.Errorf("%d and %d pairs of 1/%d: want 1 or more", o.Pairs, o.GuestPairs, o.Scale)
	}
	if o.Pairs == 0 && len(o.Kernels) == 0 {
		return result, errors.New("nothing to measure: want pairs of windows on the host, or at least one kernel")
	}
	for _, kernel := range o.Kernels {
		rows, err := o.inGuest(ctx, l, kernel)
		if err != nil {
			return result, fmt.Errorf("kernel %s: %w", kernel, err)
		}
		result.Rows = append(result.Rows, rows.Rows...)
		result.Programs = append(result.Programs, rows.Programs...)
	}
	if o.Pairs == 0 {
		return result, nil
	}
	return result, result.onHost(ctx, l, o.Extent)
}

// onHost uses a simulated disk without delays, so that processor time is the largest
// possible part of a call. Only loads that wait for a disk get the delays of a
// solid-state disk.
func (o *Result) onHost(ctx context.Context, l fixture.Lab, e Extent) (err error) {
	l.Say("preparing a disk")
	model, err := disksim.Preset(diskModel)
	if err != nil {
		return err
	}
	fs, err := fixture.MakeFileSystem(ctx, l.Tree, fixture.Options{Parameters: model, SizeBytes: fixture.DiskBytes, JournalBytes: fixture.JournalBytes})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fs.Close()) }()
	measured, err := measure(ctx, l, fs, hostLoads, e, Nanoseconds)
	o.Rows = append(o.Rows, measured.Rows...)
	o.Programs = append(o.Programs, measured.Programs...)
	o.ClockNanoseconds = measured.ClockNanoseconds
	return err
}

// measure compares the loads, and then counts the programs' runs, separately because
// that has a cost too.
func measure(ctx context.Context, l fixture.Lab, fs *fixture.FileSystem, loads []load, e Extent, unit string) (result Result, err error) {
	w, err := open(l, fs, loads, e)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, w.probe.Close()) }()
	if unit == Instructions {
		if w.empty, err = w.probe.Placeholders(); err != nil {
			return result, err
		}
		defer func() { err = errors.Join(err, w.empty.Close()) }()
	}
	if result.Rows, err = w.compare(ctx, e.Pairs, unit); err != nil {
		return result, err
	}
	result.Programs, result.ClockNanoseconds, err = w.countPrograms(ctx, result.Rows)
	return result, err
}

// Check returns an error for each operation whose whole range is above the bound, and if there is
// no operation.
func (o Result) Check() error {
	if len(o.Rows) == 0 {
		return errors.New("nothing was measured")
	}
	var errs []error
	for _, row := range o.Rows {
		if row.Verdict == Missed {
			errs = append(errs, fmt.Errorf("%s%s: %.4f (%.4f to %.4f) times the %s of the detached programs, want at most %.2f",
				row.Operation, row.place(), row.Ratio, row.Low, row.High, row.Unit, Bound))
		}
	}
	return errors.Join(errs...)
}

// place names the guest.
func (r Row) place() string {
	if r.Kernel == "" {
		return ""
	}
	return " on " + r.Kernel
}
