package volumes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/pair"
	"github.com/daybook-project/daybook/internal/fio"
)

// plannedPart is a part of the experiment: a load on a disk, in one data mode.
type plannedPart struct {
	pair.Case
	// neighbours are the neighbours of A, the quietest first; nil in parts that
	// choose their own.
	neighbours []fio.Neighbour
}

// has reports whether the part is measured in an arrangement. Control is measured with
// fio only: a database that waits for each sync has no queue that weights could divide.
func (p plannedPart) has(a fixture.Arrangement) bool { return !a.Controlled() || p.Load == pair.Fio }

// in returns the conditions of the part in an arrangement.
func (p plannedPart) in(a fixture.Arrangement) pair.Conditions {
	return pair.Conditions{Disk: p.Disk, DataMode: p.DataMode, Arrangement: a, Slicing: pair.ShortSlices()}
}

// plan returns the whole experiment, in the order of the page.
func plan() []plannedPart {
	few := []fio.Neighbour{pair.Alone, fio.HighFsync, pair.Limited}
	of := func(disk, load string, mode pair.DataMode, neighbours []fio.Neighbour) plannedPart {
		return plannedPart{pair.Case{Disk: disk, Load: load, DataMode: mode}, neighbours}
	}
	return []plannedPart{
		of(pair.HDD, pair.Fio, pair.Ordered, append([]fio.Neighbour{pair.Alone}, fio.Neighbours()...)),
		of(pair.HDD, pair.MariaDB, pair.Ordered, pair.Neighbours()),
		of(pair.HDD, pair.MariaDB, pair.Unwritten, []fio.Neighbour{pair.Alone, fio.LowFsync, fio.HighFsync, pair.Limited}),
		of(pair.HDD, pair.PostgreSQL, pair.Ordered, few),
		of(pair.HDD, slicesLoad, pair.Ordered, nil),
		of(pair.HDD, poolLoad, pair.Ordered, nil),
		of(pair.Plain, pair.MariaDB, pair.Ordered, few),
	}
}

// Options say how much bench-volumes measures.
type Options struct {
	pair.Measurement
	// Rounds is how often each phase is measured.
	Rounds int
	// Disks, Loads, DataModes and Neighbours select parts of the plan. Other parts
	// are copied from Before. All phases beside one neighbour are from one run, so
	// phases in other Arrangements are not copied.
	Disks, Loads []string
	DataModes    []pair.DataMode
	Neighbours   []fio.Neighbour
	Arrangements []fixture.Arrangement
	Before       Result
}

// Full is the benchmark, Quick a short run that tests it.
var (
	Full = Options{
		Measurement: pair.Measurement{Seconds: 12, Interval: 2 * time.Second}, Rounds: 1,
		Disks: Disks(), Loads: Loads(), DataModes: pair.DataModes(), Neighbours: pair.Neighbours(), Arrangements: fixture.Arrangements(),
	}
	Quick = Options{
		Measurement: pair.Measurement{Seconds: 4, Interval: time.Second}, Rounds: 1,
		Disks: []string{pair.HDD}, Loads: []string{pair.Fio, pair.MariaDB}, DataModes: []pair.DataMode{pair.Ordered}, Neighbours: []fio.Neighbour{fio.HighFsync}, Arrangements: fixture.Arrangements(),
	}
)

// Check returns an error if the options are invalid.
func (o Options) Check() error {
	if err := o.Measurement.Check(); err != nil {
		return err
	}
	if o.Rounds < 1 {
		return fmt.Errorf("%d rounds: want at least one", o.Rounds)
	}
	for _, list := range []struct {
		what          string
		asked, choice []string
	}{
		{"disk", o.Disks, Disks()}, {"load", o.Loads, Loads()},
		{"data mode", texts(o.DataModes), texts(pair.DataModes())}, {"neighbour", texts(o.Neighbours), texts(pair.Neighbours())},
		{"arrangement", texts(o.Arrangements), texts(fixture.Arrangements())},
	} {
		if len(list.asked) == 0 {
			return fmt.Errorf("no %s: choose from %s", list.what, strings.Join(list.choice, ", "))
		}
		for _, name := range list.asked {
			if !slices.Contains(list.choice, name) {
				return fmt.Errorf("no %s %q: choose from %s", list.what, name, strings.Join(list.choice, ", "))
			}
		}
	}
	var parts []string
	for _, p := range plan() {
		if o.asks(p) {
			return nil
		}
		parts = append(parts, p.String())
	}
	return fmt.Errorf("nothing to measure: no part of the experiment matches all options; the parts are %s", strings.Join(parts, "; "))
}

// asks reports whether the part is to be measured.
func (o Options) asks(p plannedPart) bool {
	return slices.Contains(o.Disks, p.Disk) && slices.Contains(o.Loads, p.Load) && slices.Contains(o.DataModes, p.DataMode) &&
		(p.neighbours == nil || len(o.beside(p)) > 0 && slices.ContainsFunc(o.Arrangements, p.has))
}

// order returns the part's arrangements in the order of a round, from 0. Each round starts with
// another arrangement.
func (o Options) order(p plannedPart, round int) []fixture.Arrangement {
	var all []fixture.Arrangement
	for _, a := range o.Arrangements {
		if p.has(a) {
			all = append(all, a)
		}
	}
	first := round % max(1, len(all))
	return slices.Concat(all[first:], all[:first])
}

// beside returns the part's neighbours that the options select.
func (o Options) beside(p plannedPart) []fio.Neighbour {
	var asked []fio.Neighbour
	for _, n := range p.neighbours {
		if slices.Contains(o.Neighbours, n) {
			asked = append(asked, n)
		}
	}
	return asked
}

func texts[T ~string](values []T) []string {
	var all []string
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}
