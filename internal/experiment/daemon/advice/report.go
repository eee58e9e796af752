package advice

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/advise"
	"github.com/daybook-project/daybook/internal/experiment/pair"
	"github.com/daybook-project/daybook/internal/experiment/report"
)

// remedies are those that arrangements of a pair show.
var remedies = []struct {
	kind  advise.Kind
	title string
}{
	{advise.DeviceVolume, "a volume on a device"},
	{advise.ImageVolume, "a volume in an image on XFS"},
	{advise.MountOption, "a mount with dioread_nolock"},
}

// Report returns the result as a report.
func (r Result) Report() (report.Report, error) {
	tables, err := r.Tables()
	return report.Report{
		Title: "Does advise predict what a volume gives?", Tables: tables, Host: r.Host,
		Lead: []string{"Each case is measured on one shared ext4. From this alone advise predicts what a volume, or another mount, would give; then that is measured."},
	}, err
}

// Tables are the held-out cases, one table for each remedy, and how well the model
// fits the cases with which it was tuned.
func (r Result) Tables() ([]report.Table, error) {
	var tables []report.Table
	summary := report.Table{
		Title:   "Predictions of advise within the bound",
		Columns: []string{"remedy", "set", "cases", "within the bound", "throughput alone", "p99 alone", "throughput in its range", "p99 in its range"},
	}
	for _, set := range []string{HeldOutSet, TuningSet} {
		all, err := r.compare(set)
		if err != nil {
			return nil, err
		}
		if repeated := r.repeatTable(set); len(repeated.Rows) > 0 {
			tables = append(tables, repeated)
		}
		for _, remedy := range remedies {
			cases, held := count(all, remedy.kind)
			if cases == 0 {
				continue
			}
			var throughput, p99, gainInRange, p99InRange int
			for _, c := range all {
				if c.kind != remedy.kind || !c.enough {
					continue
				}
				if off(c.gain.Median, c.measuredGain) <= Bound {
					throughput++
				}
				if off(c.p99.Median, c.measuredP99) <= Bound {
					p99++
				}
				if c.gainInRange() {
					gainInRange++
				}
				if c.p99InRange() {
					p99InRange++
				}
			}
			summary.Rows = append(summary.Rows, []string{remedy.title, set, fmt.Sprint(cases), fmt.Sprint(held), fmt.Sprint(throughput), fmt.Sprint(p99), fmt.Sprint(gainInRange), fmt.Sprint(p99InRange)})
			tables = append(tables, remedyTable(all, set, remedy.kind, remedy.title))
		}
	}
	if len(summary.Rows) == 0 {
		return nil, nil
	}
	heldOut, seen := pair.QuickHDD, "; not with the held-out set"
	if parts := r.Parts[HeldOutSet]; len(parts) > 0 && parts[0].Disk == pair.SlowHDD {
		heldOut, seen = pair.SlowHDD, ": the held-out set of these figures is not held out any more"
	}
	summary.Note = fmt.Sprintf("Within the bound: both the throughput and p99 of the syncs are predicted within a factor of %.1f. Wanted: %d of 10 held-out cases, for a volume on a device. "+
		"Tuning: MariaDB with %d clients on the simulated disk of the [volumes' experiments](volumes.md). Held-out: the same on another simulated disk (%s).%s "+
		"The model and its constants were chosen with the tuning set, with the published tables of the volumes' experiments, which have the same load and disk, and with a slower disk (%s)%s. "+
		"Throughput is the database's transactions. A case with too few syncs for a prediction counts as outside.%s",
		Bound, WantedOfTen, pair.DatabaseClients, pair.Describe(heldOut), r.otherLoad(), pair.Describe(pair.SlowHDD), seen, r.conditions())
	return append([]report.Table{summary}, tables...), nil
}

// otherLoad describes the third set, if it was measured.
func (r Result) otherLoad() string {
	if len(r.Parts[OtherLoadSet]) == 0 {
		return ""
	}
	return fmt.Sprintf(" Other load: %d fio writers of %d KiB with a sync after each write, on that disk.", pair.SmallCount, pair.SmallBlockBytes>>10)
}

// conditions says for each set when it was measured, how long, and beside what load.
func (r Result) conditions() string {
	text := ""
	for _, set := range Sets() {
		if len(r.Parts[set]) == 0 || len(r.Parts[set][0].Phases) == 0 {
			continue
		}
		first := r.Parts[set][0]
		text += fmt.Sprintf(" %s: measured %s, %d times %.0f s on the shared ext4 for each case, ", set, first.Measured.Format("2006-01-02 15:04 UTC"), len(roundsOf(first, first.Phases[0].Arrangement, first.Phases[0].Neighbour)), first.Phases[0].Seconds)
		if load, known := r.Loads[set]; known {
			text += fmt.Sprintf("the host's load average was %s at the beginning and %s at the end.", load[0], load[1])
		} else {
			text += "the host's load average was not recorded."
		}
	}
	return text
}

func remedyTable(all []comparison, set string, kind advise.Kind, title string) report.Table {
	t := report.Table{
		Title:   "Advise: " + title + ", " + set,
		Columns: []string{"neighbour, mode", "syncs measured", "throughput, factor: predicted", "measured", "p99 now, ms", "p99, ms: predicted", "measured", "within"},
	}
	for _, c := range all {
		if c.kind != kind {
			continue
		}
		gain, p99, within := "–", "–", "**no**"
		if c.enough {
			gain = fmt.Sprintf("%.2f (%.2f to %.2f)", c.gain.Median, c.gain.Low, c.gain.High)
			p99 = fmt.Sprintf("%.1f (%.1f to %.1f)", 1e3*c.p99.Median, 1e3*c.p99.Low, 1e3*c.p99.High)
		}
		if c.holds() {
			within = "yes"
		}
		measured := fmt.Sprintf("%.2f", c.measuredGain)
		if c.before.Rate == 0 {
			measured = "–" // of nothing
		}
		t.Rows = append(t.Rows, []string{
			fmt.Sprintf("%s, %s", c.neighbour, c.mode), fmt.Sprint(c.calls), gain, measured,
			report.Milliseconds(c.before.SyncA.P99Seconds), p99, report.Milliseconds(c.measuredP99), within,
		})
	}
	return t
}
