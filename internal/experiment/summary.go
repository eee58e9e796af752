package experiment

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/figure"
)

// Summary is what a run of a scenario came to, for machines.
type Summary struct {
	Scenario string         `json:"scenario"`
	Phases   []PhaseSummary `json:"phases"`
}

// PhaseSummary is one phase's. Name is "uncontrolled" or "controlled".
type PhaseSummary struct {
	Name             string             `json:"name"`
	Law              string             `json:"law,omitempty"`
	Seconds          float64            `json:"seconds"`
	DiskBytes        uint64             `json:"disk_bytes"`
	UnaccountedBytes int64              `json:"unaccounted_bytes"`
	Transactions     uint64             `json:"transactions"`
	LostEvents       uint64             `json:"lost_events"`
	Containers       []ContainerSummary `json:"containers"`
}

// ContainerSummary is one container's part of a phase. Share is its bytes over
// those of all containers of the scenario, 0..1.
type ContainerSummary struct {
	Name           string  `json:"name"`
	TargetShare    float64 `json:"target_share"`
	Share          float64 `json:"share"`
	ChargedBytes   uint64  `json:"charged_bytes"`
	JournalBytes   uint64  `json:"journal_bytes"`
	MetadataBytes  uint64  `json:"metadata_bytes"`
	UnchargedBytes uint64  `json:"uncharged_bytes"`
	ReturnedBytes  uint64  `json:"returned_bytes"`
	// WithinFivePoints is the part of the intervals after the third in
	// which its share was within five points of the target, 0..1.
	WithinFivePoints float64 `json:"within_five_points"`
	Directories      int64   `json:"directories"`
}

// Summarize makes the summary of the phases.
func Summarize(scenario Scenario, phases []Phase) Summary {
	summary := Summary{Scenario: scenario.Name}
	for _, phase := range phases {
		summary.Phases = append(summary.Phases, summarizePhase(scenario, phase))
	}
	return summary
}

// settledAfter is the number of intervals that a law has to find its weights.
const settledAfter = 3

func summarizePhase(scenario Scenario, phase Phase) PhaseSummary {
	out := PhaseSummary{
		Name: Uncontrolled, DiskBytes: phase.Device.DiskBytes, UnaccountedBytes: phase.Device.UnaccountedBytes,
		Transactions: phase.Device.Transactions, LostEvents: phase.Device.LostEvents,
	}
	if phase.Name != Uncontrolled {
		out.Name, out.Law = "controlled", phase.Name
	}
	within := make([]int, len(scenario.Actors))
	targets := scenario.targets()
	for i, sample := range phase.Samples {
		out.Seconds += sample.IntervalSeconds
		if i < settledAfter {
			continue
		}
		for n, share := range SharesOf(sample, scenario) {
			if math.Abs(share-targets[n]) <= 0.05 {
				within[n]++
			}
		}
	}
	whole := account.Sample{Devices: []account.Device{phase.Device}}
	shares := SharesOf(whole, scenario)
	for n, actor := range scenario.Actors {
		c := lineOf(whole, actor.Name)
		line := ContainerSummary{
			Name: actor.Name, TargetShare: targets[n], Share: shares[n],
			ChargedBytes: c.Charged(), JournalBytes: c.JournalBytes, MetadataBytes: c.MetadataBytes,
			UnchargedBytes: c.UnchargedBytes, ReturnedBytes: c.ReturnedBytes, Directories: phase.Done[actor.Name].Directories,
		}
		if settled := len(phase.Samples) - settledAfter; settled > 0 {
			line.WithinFivePoints = float64(within[n]) / float64(settled)
		}
		out.Containers = append(out.Containers, line)
	}
	return out
}

func (s Scenario) targets() []float64 {
	var sum float64
	for _, actor := range s.Actors {
		sum += float64(actor.Weight)
	}
	targets := make([]float64, len(s.Actors))
	for n, actor := range s.Actors {
		targets[n] = float64(actor.Weight) / sum
	}
	return targets
}

// SharesOf gives the actors' shares of what all actors did in a sample, 0..1,
// in the scenario's order.
func SharesOf(sample account.Sample, scenario Scenario) []float64 {
	shares := make([]float64, len(scenario.Actors))
	var sum float64
	for n, actor := range scenario.Actors {
		shares[n] = float64(lineOf(sample, actor.Name).Bytes())
		sum += shares[n]
	}
	for n := range shares {
		if sum > 0 {
			shares[n] /= sum
		}
	}
	return shares
}

func lineOf(sample account.Sample, name string) account.Container {
	for _, device := range sample.Devices {
		for _, c := range device.Containers {
			if c.Name == name {
				return c
			}
		}
	}
	return account.Container{}
}

// WriteTable prints the phases for people.
func WriteTable(w io.Writer, scenario Scenario, phases []Phase) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\ncontainer\ttarget\tshare\tcharged\tjournal\tmetadata\tuncharged\tMB\t")
	mb := func(bytes uint64) string { return fmt.Sprintf("%.1f", float64(bytes)/1e6) }
	summary := Summarize(scenario, phases)
	for _, phase := range summary.Phases {
		name := phase.Name
		if phase.Law != "" {
			name += " (" + phase.Law + " law)"
		}
		fmt.Fprintf(table, "%s\t\t\t\t\t\t\t\t\n", name)
		for _, c := range phase.Containers {
			fmt.Fprintf(table, "%s\t%.1f %%\t%.1f %%\t%s\t%s\t%s\t%s\t%s\t\n", c.Name, 100*c.TargetShare, 100*c.Share,
				mb(c.ChargedBytes), mb(c.JournalBytes), mb(c.MetadataBytes), mb(c.UnchargedBytes),
				mb(c.ChargedBytes+c.JournalBytes+c.MetadataBytes+c.UnchargedBytes))
		}
		fmt.Fprintf(table, "disk\t\t\t\t\t\t\t%s\t\n", mb(phase.DiskBytes))
	}
	return table.Flush()
}

// Drawing is a report and its picture.
type Drawing struct{ HTML, SVG []byte }

// DrawShares draws the phases as the paper's Figs. 2, 3, 5 and 6 are; command
// says how they were made.
func DrawShares(scenario Scenario, phases []Phase, command string) (Drawing, error) {
	if len(phases) == 0 {
		return Drawing{}, nil
	}
	shares := figure.Shares{Device: phases[0].Device.Device}
	for n, target := range scenario.targets() {
		shares.Containers = append(shares.Containers, figure.Container{Cgroup: scenario.Actors[n].Name, Name: scenario.Actors[n].Name, Target: target})
	}
	for _, phase := range phases {
		title := Uncontrolled
		if phase.Name != Uncontrolled {
			title = "controlled, " + phase.Name + " law"
		}
		shares.Phases = append(shares.Phases, figure.Phase{Name: title, Samples: byName(phase, shares.Device)})
	}
	picture, err := shares.SVG()
	if err != nil {
		return Drawing{}, err
	}
	composition, err := shares.SVG(figure.Composition, figure.Weights)
	if err != nil {
		return Drawing{}, err
	}
	report := figure.Report{
		Title:  "Shares of a disk, with the journal counted",
		Lead:   "Containers that were promised shares of one disk; some of them make metadata, which jbd2 writes in the root cgroup's name.",
		Shares: shares,
		Figures: []figure.Figure{
			{Title: "I/O over time, and how often which share", Text: "As Figs. 2, 3, 5 and 6 of the paper.", SVG: picture},
			{Title: "What it consists of, and the weights in force", SVG: composition},
		},
		Made: []figure.Fact{
			{Name: "command", Value: command},
			{Name: "scenario", Value: scenario.Name},
			{Name: "disk", Value: scenario.disk()},
			{Name: "scheduler", Value: scenario.divider() + ", in all phases"},
			{Name: "kernel", Value: kernelRelease()},
		},
	}
	html, err := report.HTML()
	return Drawing{HTML: html, SVG: picture}, err
}

// disk and divider say for people where the scenario runs.
func (s Scenario) disk() string {
	if s.Disk != nil {
		return fmt.Sprintf("%s, %.1f MB/s", s.Disk.Node, float64(s.Disk.BytesPerSecond)/1e6)
	}
	return fmt.Sprintf("simulated: %.0f MB/s, full-stroke seek %.1f ms, track-to-track %.1f ms",
		s.Parameters.BandwidthBytesPerSecond/1e6, s.Parameters.FullStrokeSeekSeconds*1e3, s.Parameters.TrackToTrackSeekSeconds*1e3)
}

func (s Scenario) divider() string {
	if s.Disk != nil && s.Disk.Divider != BFQ {
		model, qos := s.Disk.cost()
		return "none, io.cost.model: " + model + ", io.cost.qos: " + qos
	}
	return settings(s.Tunables)
}

// Recording gives the phase's samples with cgroups and a device that are the
// same in each run: "/A" for the actor A, and "disk".
func (p Phase) Recording() []account.Sample {
	samples := byName(p, "disk")
	for _, sample := range samples {
		for _, device := range sample.Devices {
			for n := range device.Containers {
				device.Containers[n].Cgroup = "/" + strings.TrimPrefix(device.Containers[n].Name, "/")
			}
		}
	}
	return samples
}

// byName puts the actors' names in place of their cgroups, which are other
// ones in each run, and the device's name, likewise.
func byName(phase Phase, device string) []account.Sample {
	out := make([]account.Sample, len(phase.Samples))
	for i, sample := range phase.Samples {
		out[i] = sample
		out[i].Devices = nil
		for _, d := range sample.Devices {
			d.Device = device
			containers := d.Containers
			d.Containers = make([]account.Container, len(containers))
			for n, c := range containers {
				c.Cgroup = c.Name
				d.Containers[n] = c
			}
			out[i].Devices = append(out[i].Devices, d)
		}
	}
	return out
}
