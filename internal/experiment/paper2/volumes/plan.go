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

// The ways of ext4 with new data that a program wrote through the page cache.
const (
	// Ordered: new extents are written at once, and the transaction with
	// them may not commit before their data is on the disk. That is how
	// paper 2's kernels did it, and the mount option nodioread_nolock does.
	Ordered DataMode = "ordered"
	// Unwritten: new extents are marked unwritten until their data is on the
	// disk, and only then enter a transaction: no commit waits for data.
	// The kernel's default since 5.6, at first only where blocks are as large
	// as pages.
	Unwritten DataMode = "unwritten"
)

// DataModes lists them.
func DataModes() []DataMode { return []DataMode{Ordered, Unwritten} }

// mountOption is ext4's for the mode.
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
	// neighbours that it has, the quietest first; none in the parts that
	// have their own.
	neighbours []fio.Neighbour
}

// has says whether the part is measured in an arrangement. Control divides what
// is asked for, of which a database that waits for each sync has nothing queued.
func (p plannedPart) has(a fixture.Arrangement) bool { return !a.Controlled() || p.load == fioLoad }

func (p plannedPart) String() string { return fmt.Sprintf("%s, %s, %s", p.disk, p.load, p.mode) }

// plan is the whole experiment, in the order of the page.
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
	// Interval is that of a sample; Seconds hold a whole number of them.
	Interval time.Duration
	// Disks, Loads, DataModes and Neighbours choose of the plan. What is not
	// measured is taken over from Before; but phases beside one neighbour are
	// of one run, so those in other Arrangements are not.
	Disks, Loads []string
	DataModes    []DataMode
	Neighbours   []fio.Neighbour
	Arrangements []fixture.Arrangement
	Before       Result
}

// Full is the benchmark, Quick a look whether it works.
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

// Check says what is wrong with the options.
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
			return fmt.Errorf("no %s: choose of %s", list.what, strings.Join(list.choice, ", "))
		}
		for _, name := range list.asked {
			if !slices.Contains(list.choice, name) {
				return fmt.Errorf("no %s %q: choose of %s", list.what, name, strings.Join(list.choice, ", "))
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
	return fmt.Errorf("nothing to measure: no part of the experiment is all of what is asked for; there are %s", strings.Join(parts, "; "))
}

// asks says whether the part is to be measured.
func (o Options) asks(p plannedPart) bool {
	return slices.Contains(o.Disks, p.disk) && slices.Contains(o.Loads, p.load) && slices.Contains(o.DataModes, p.mode) &&
		(p.neighbours == nil || len(o.beside(p)) > 0 && slices.ContainsFunc(o.Arrangements, p.has))
}

// beside are the part's neighbours that are asked for.
func (o Options) beside(p plannedPart) []fio.Neighbour {
	var asked []fio.Neighbour
	for _, n := range p.neighbours {
		if slices.Contains(o.Neighbours, n) {
			asked = append(asked, n)
		}
	}
	return asked
}
