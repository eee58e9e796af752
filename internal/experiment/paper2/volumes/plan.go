package volumes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/meter"
)

// DataMode is how ext4 writes new data in its ordered journal mode.
type DataMode string

// The data modes of ext4, for new data that a program writes through the page cache.
const (
	// Ordered means that a transaction with new extents commits only after their data
	// is on the disk. The kernels of paper 2 did this; today the mount option
	// nodioread_nolock does.
	Ordered DataMode = "ordered"
	// Unwritten means that new extents are marked unwritten until their data is on
	// the disk, and enter a transaction only then: no commit waits for data. It is
	// the kernel's default since 5.6, at first only if blocks are as large as pages.
	Unwritten DataMode = "unwritten"
)

// DataModes lists all data modes.
func DataModes() []DataMode { return []DataMode{Ordered, Unwritten} }

// mountOption returns ext4's mount option for the mode.
func (m DataMode) mountOption() string {
	if m == Unwritten {
		return "dioread_nolock"
	}
	return "nodioread_nolock"
}

// plannedPart is a part of the experiment: a load on a disk, in one data mode.
type plannedPart struct {
	disk, load string
	mode       DataMode
	// neighbours are the neighbours of A, the quietest first; nil in parts that
	// choose their own.
	neighbours []fio.Neighbour
}

// has reports whether the part is measured in an arrangement. Control is measured with
// fio only: a database that waits for each sync has no queue that weights could divide.
func (p plannedPart) has(a fixture.Arrangement) bool { return !a.Controlled() || p.load == fioLoad }

func (p plannedPart) String() string { return fmt.Sprintf("%s, %s, %s", p.disk, p.load, p.mode) }

// plan returns the whole experiment, in the order of the page.
func plan() []plannedPart {
	few := []fio.Neighbour{Alone, fio.HighFsync, Limited}
	return []plannedPart{
		{simulatedHDD, fioLoad, Ordered, append([]fio.Neighbour{Alone}, fio.Neighbours()...)},
		{simulatedHDD, mariadbLoad, Ordered, allNeighbours()},
		{simulatedHDD, mariadbLoad, Unwritten, []fio.Neighbour{Alone, fio.LowFsync, fio.HighFsync, Limited}},
		{simulatedHDD, postgresqlLoad, Ordered, few},
		{simulatedHDD, slicesLoad, Ordered, nil},
		{simulatedHDD, poolLoad, Ordered, nil},
		{plainDisk, mariadbLoad, Ordered, few},
	}
}

// Options say how much bench-volumes measures.
type Options struct {
	// Seconds is the length of a phase, Rounds how often each is measured.
	Seconds, Rounds int
	// Interval is the length of a sample; a phase is a whole number of samples.
	Interval time.Duration
	// Disks, Loads, DataModes and Neighbours select parts of the plan. Other parts
	// are copied from Before. All phases beside one neighbour are from one run, so
	// phases in other Arrangements are not copied.
	Disks, Loads []string
	DataModes    []DataMode
	Neighbours   []fio.Neighbour
	Arrangements []fixture.Arrangement
	Before       Result
	// waits also measures the waits for the journal.
	waits bool
	// sharedSeconds, if not 0, is the length of a phase on the shared ext4.
	sharedSeconds int
	// keepRounds keeps all phases, and not the median one of the rounds.
	keepRounds bool
}

// Full is the benchmark, Quick a short run that tests it.
var (
	Full = Options{
		Seconds: 12, Rounds: 1, Interval: 2 * time.Second,
		Disks: Disks(), Loads: Loads(), DataModes: DataModes(), Neighbours: allNeighbours(), Arrangements: fixture.Arrangements(),
	}
	Quick = Options{
		Seconds: 4, Rounds: 1, Interval: time.Second,
		Disks: []string{simulatedHDD}, Loads: []string{fioLoad, mariadbLoad}, DataModes: []DataMode{Ordered}, Neighbours: []fio.Neighbour{fio.HighFsync}, Arrangements: fixture.Arrangements(),
	}
)

// Check returns an error if the options are invalid.
func (o Options) Check() error {
	if o.Interval < meter.MinInterval || time.Duration(o.Seconds)*time.Second < o.Interval {
		return fmt.Errorf("phases of %d s with samples of %v: want at least one sample, of at least %v", o.Seconds, o.Interval, meter.MinInterval)
	}
	if o.Rounds < 1 {
		return fmt.Errorf("%d rounds: want at least one", o.Rounds)
	}
	for _, list := range []struct {
		what          string
		asked, choice []string
	}{
		{"disk", o.Disks, Disks()}, {"load", o.Loads, Loads()},
		{"data mode", texts(o.DataModes), texts(DataModes())}, {"neighbour", texts(o.Neighbours), texts(allNeighbours())},
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
	return slices.Contains(o.Disks, p.disk) && slices.Contains(o.Loads, p.load) && slices.Contains(o.DataModes, p.mode) &&
		(p.neighbours == nil || len(o.beside(p)) > 0 && slices.ContainsFunc(o.Arrangements, p.has))
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
