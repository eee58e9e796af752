package advice

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/pair"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/fio"
)

// The sets of cases: the model of advise was tuned with the first. Its bound is for the
// second, and the third has another load. The second once had the slow disk; the model was
// then changed because of what was measured there, so it has another now.
const (
	TuningSet    = "tuning"
	HeldOutSet   = "held-out"
	OtherLoadSet = "other-load"
)

// Sets lists all.
func Sets() []string { return []string{TuningSet, HeldOutSet, OtherLoadSet} }

// Result is what was measured to check the predictions of advise: each case on one
// shared ext4, and with volumes.
type Result struct {
	Host report.Host `json:"host"`
	// Loads are the host's load averages of a minute at the beginning and the end, by
	// set.
	Loads map[string][2]string `json:"loads"`
	// Parts are by set.
	Parts map[string][]pair.Part `json:"parts"`
	// Asked is the number of parts to measure, by set: an interrupted set has fewer. None in results from
	// before it was kept.
	Asked map[string]int `json:"asked,omitempty"`
}

// cases are the cases of a set.
func cases(set string) []pair.Case {
	disk, load := pair.HDD, pair.MariaDB
	switch set {
	case HeldOutSet:
		disk = pair.QuickHDD
	case OtherLoadSet:
		disk, load = pair.QuickHDD, pair.SmallWriters
	}
	var all []pair.Case
	for _, mode := range pair.DataModes() {
		all = append(all, pair.Case{Disk: disk, Load: load, DataMode: mode})
	}
	return all
}

// Options say how much is measured of each set.
type Options struct {
	// Seconds is the length of a phase, SharedSeconds that of one on the shared ext4.
	Seconds, SharedSeconds int
	// Rounds is how often each case of the held-out set is measured. Only the bound needs
	// to know how far repeated measurements are apart.
	Rounds       int
	DataModes    []pair.DataMode
	Neighbours   []fio.Neighbour
	Arrangements []fixture.Arrangement
}

// Full is a whole check, Quick one that only shows that it works.
var (
	Full = Options{
		Seconds: 24, SharedSeconds: 30 /* advise's default interval */, Rounds: 2,
		DataModes: pair.DataModes(), Neighbours: pair.Neighbours(),
		Arrangements: []fixture.Arrangement{fixture.SharedExt4, fixture.OnDevices, fixture.PlacedOnXFS},
	}
	Quick = Options{
		Seconds: 4, SharedSeconds: 4, Rounds: 1,
		DataModes: []pair.DataMode{pair.Ordered}, Neighbours: []fio.Neighbour{fio.HighFsync},
		Arrangements: []fixture.Arrangement{fixture.SharedExt4, fixture.OnDevices},
	}
)

// Measure measures the sets; kept has the parts of the others. It calls save after
// each part, so that an interrupted run loses only the part that it was measuring.
func Measure(ctx context.Context, l fixture.Lab, o Options, sets []string, kept Result, save func(Result) error) (Result, error) {
	result := Result{Host: report.ThisHost(), Loads: kept.Loads, Parts: kept.Parts, Asked: kept.Asked}
	if result.Parts == nil {
		result.Parts = make(map[string][]pair.Part)
	}
	if result.Loads == nil {
		result.Loads = make(map[string][2]string)
	}
	if result.Asked == nil {
		result.Asked = make(map[string]int)
	}
	for _, set := range sets {
		if !slices.Contains(Sets(), set) {
			return result, fmt.Errorf("no set %q: choose from %s", set, strings.Join(Sets(), ", "))
		}
	}
	stays := func(set string) bool { return len(kept.Parts[set]) > 0 && !slices.Contains(sets, set) }
	if slices.ContainsFunc(Sets(), stays) {
		if err := report.SameHost(kept.Host, result.Host); err != nil {
			return result, err
		}
	}
	if err := fixture.RemoveLeftovers(); err != nil {
		return result, err
	}
	for _, set := range sets {
		rounds := o.Rounds
		if set != HeldOutSet {
			rounds = 1
		}
		asked := slices.DeleteFunc(cases(set), func(c pair.Case) bool { return !slices.Contains(o.DataModes, c.DataMode) })
		result.Parts[set], result.Asked[set] = nil, len(asked)
		begin := loadAverage()
		for _, c := range asked {
			part, err := o.measure(ctx, l, c, rounds)
			if err != nil {
				return result, fmt.Errorf("%s: %w", c, err)
			}
			result.Parts[set] = append(result.Parts[set], part)
			result.Loads[set] = [2]string{begin, loadAverage()}
			if err := save(result); err != nil {
				return result, err
			}
		}
	}
	return result, nil
}

// measure measures a case in rounds, and keeps the phases of all.
func (o Options) measure(ctx context.Context, l fixture.Lab, c pair.Case, rounds int) (pair.Part, error) {
	part := pair.NewPart(c)
	for range rounds {
		for _, arrangement := range o.Arrangements {
			how := pair.Measurement{Seconds: o.Seconds, Interval: 2 * time.Second, Waits: true}
			if arrangement == fixture.SharedExt4 {
				how.Seconds = o.SharedSeconds
			}
			on := pair.Conditions{Disk: c.Disk, DataMode: c.DataMode, Arrangement: arrangement, Slicing: pair.ShortSlices()}
			phases, err := pair.Measure(ctx, l, on, c.Load, o.Neighbours, how)
			if err != nil {
				return part, fmt.Errorf("arrangement %s: %w", arrangement, err)
			}
			part.Phases = append(part.Phases, phases...)
		}
	}
	return part, nil
}

// loadAverage is the host's load average of the last minute.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
