package guestlvm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/fio"
)

// Kind is the way in which LVM allocates a volume's blocks.
type Kind string

// The kinds.
const (
	Thick Kind = "thick" // linear: all its blocks at once
	Thin  Kind = "thin"  // in a thin pool
)

// Kinds lists them.
func Kinds() []Kind { return []Kind{Thick, Thin} }

// Neighbour is the load on the other volume.
type Neighbour string

// The neighbours.
const (
	Alone   Neighbour = "none"   // nothing
	Syncing Neighbour = "sync"   // small writes, each with an fsync
	Streams Neighbour = "stream" // large writes that take new blocks, an fsync now and then
)

// Neighbours lists them.
func Neighbours() []Neighbour { return []Neighbour{Alone, Syncing, Streams} }

// The guest's disks: that of the volume group, and that of the pool of records. The
// first has a limit, so that the emulated processors keep up with it.
const (
	DiskBytes          = 4 << 30
	DiskBytesPerSecond = 32 << 20
	PoolBytes          = 256 << 20
)

// MinRounds is the minimum number of rounds for a ratio.
const MinRounds = 5

// Options select how much bench-guest-lvm measures.
type Options struct {
	// Boot boots a kernel of that name, with the disks disk0 and disk1 in /dev/daybook.
	Boot   func(ctx context.Context, kernel string) (Guest, error)
	Kernel string
	Case
}

// Case is the input of the run in the guest.
type Case struct {
	Rounds int `json:"rounds"`
	// FlushMilliseconds is how long the disk takes for a flush; 0 adds nothing.
	FlushMilliseconds int           `json:"flush_milliseconds"`
	WarmUp            time.Duration `json:"warm_up_nanoseconds"`
	Time              time.Duration `json:"time_nanoseconds"`
}

// Full is the benchmark, Quick a short run that tests it.
var (
	Full  = Options{Case: Case{Rounds: 6, FlushMilliseconds: 8, WarmUp: time.Second, Time: 5 * time.Second}}
	Quick = Options{Case: Case{Rounds: 1, FlushMilliseconds: 8, WarmUp: time.Second, Time: 2 * time.Second}}
)

func (c Case) check() error {
	if c.Rounds < 1 || c.FlushMilliseconds < 0 || c.WarmUp < 0 || c.Time < time.Second {
		return fmt.Errorf("%d rounds of %v, a warm-up of %v, flushes of %d ms: want at least one round of at least 1 s", c.Rounds, c.Time, c.WarmUp, c.FlushMilliseconds)
	}
	return nil
}

// Guest is a booted kernel.
type Guest = fixture.Guest[Case, []Sample]

// Sample is one measurement of a volume's writer beside a neighbour.
type Sample struct {
	Round     int       `json:"round"`
	Kind      Kind      `json:"kind"`
	Neighbour Neighbour `json:"neighbour"`
	// Writer is the measured one. Other is the neighbour, for all the time that it
	// ran.
	Writer fio.Result `json:"writer"`
	Other  fio.Result `json:"other"`
}

// syncsPerSecond is the rate of the measured writer.
func (s Sample) syncsPerSecond() float64 {
	if s.Writer.Seconds == 0 {
		return 0
	}
	return float64(s.Writer.Syncs) / s.Writer.Seconds
}

// Result is the result of bench-guest-lvm.
type Result struct {
	Host report.Host `json:"host"`
	// Kernel is uname -r of the guest.
	Kernel string `json:"kernel"`
	Case
	Samples []Sample `json:"samples"`
}

// Bench measures both kinds in one boot, in turn.
func Bench(ctx context.Context, l fixture.Lab, o Options) (result Result, err error) {
	result = Result{Host: report.ThisHost(), Case: o.Case}
	if err := o.check(); err != nil {
		return result, err
	}
	err = fixture.InGuest(ctx, l, o.Kernel, o.Boot, func(g Guest) (err error) {
		result.Kernel = g.Kernel()
		result.Samples, err = g.Run(ctx, o.Case, l.Say)
		return err
	})
	return result, err
}

// Check says what is missing from the result. It has no bound: the recommendation of
// docs/volumes.md rests on the figures.
func (r Result) Check() error {
	var errs []error
	for _, neighbour := range Neighbours() {
		for _, kind := range Kinds() {
			rounds := 0
			for _, s := range r.Samples {
				if s.Kind == kind && s.Neighbour == neighbour && s.Writer.Syncs > 0 {
					rounds++
				}
			}
			if rounds < min(MinRounds, r.Rounds) {
				errs = append(errs, fmt.Errorf("%s beside %s: %d rounds with syncs", kind, neighbour, rounds))
			}
		}
	}
	return errors.Join(errs...)
}

// values returns a figure of all rounds of a kind beside a neighbour, by round.
func (r Result) values(kind Kind, neighbour Neighbour, figure func(Sample) float64) []float64 {
	var all []float64
	for _, s := range r.Samples {
		if s.Kind == kind && s.Neighbour == neighbour {
			all = append(all, figure(s))
		}
	}
	return all
}

// ratios divides the figures of each round.
func ratios(above, below []float64) []float64 {
	all := make([]float64, 0, len(above))
	for n := range min(len(above), len(below)) {
		if below[n] > 0 {
			all = append(all, above[n]/below[n])
		}
	}
	return all
}

// order is the order in which a round measures the kinds.
func order(round int) []Kind {
	kinds := Kinds()
	if round%2 == 1 {
		slices.Reverse(kinds)
	}
	return kinds
}
