package scenario

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
)

// Summary is the machine-readable result of a run of a scenario.
type Summary struct {
	Scenario string         `json:"scenario"`
	Phases   []PhaseSummary `json:"phases"`
}

// PhaseSummary is the summary of one phase. Name is "uncontrolled" or "controlled".
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
	// WorstInterval is the largest distance of its share from the target in one of these
	// intervals, 0..1.
	WorstInterval float64 `json:"worst_interval"`
	Directories   int64   `json:"directories"`
}

// Throughput is that of the disk, in bytes a second.
func (p PhaseSummary) Throughput() float64 { return float64(p.DiskBytes) / p.Seconds }

// Summarize computes the summary of the phases.
func (s Scenario) Summarize(phases []Phase) Summary {
	summary := Summary{Scenario: s.Name}
	for _, phase := range phases {
		summary.Phases = append(summary.Phases, s.summarizePhase(phase))
	}
	return summary
}

// warmUpIntervals is the number of intervals that a law has to find its weights.
const warmUpIntervals = 3

func (s Scenario) summarizePhase(phase Phase) PhaseSummary {
	out := PhaseSummary{
		Name: Uncontrolled, DiskBytes: phase.Device.DiskBytes, UnaccountedBytes: phase.Device.UnaccountedBytes,
		Transactions: phase.Device.Transactions, LostEvents: phase.Device.LostEvents,
	}
	if phase.Name != Uncontrolled {
		out.Name, out.Law = "controlled", phase.Name
	}
	within := make([]int, len(s.Actors))
	worst := make([]float64, len(s.Actors))
	targets := s.Targets()
	for i, sample := range phase.Samples {
		out.Seconds += sample.IntervalSeconds
		if i < warmUpIntervals {
			continue
		}
		for n, share := range s.Shares(sample) {
			worst[n] = math.Max(worst[n], math.Abs(share-targets[n]))
			if math.Abs(share-targets[n]) <= 0.05 {
				within[n]++
			}
		}
	}
	whole := account.Sample{Devices: []account.Device{phase.Device}}
	shares := s.Shares(whole)
	for n, actor := range s.Actors {
		c := whole.Container(actor.Name)
		line := ContainerSummary{
			Name: actor.Name, TargetShare: targets[n], Share: shares[n],
			ChargedBytes: c.Charged(), JournalBytes: c.JournalBytes, MetadataBytes: c.MetadataBytes,
			UnchargedBytes: c.UnchargedBytes, ReturnedBytes: c.ReturnedBytes, Directories: phase.Done[actor.Name].Directories, WorstInterval: worst[n],
		}
		if counted := len(phase.Samples) - warmUpIntervals; counted > 0 {
			line.WithinFivePoints = float64(within[n]) / float64(counted)
		}
		out.Containers = append(out.Containers, line)
	}
	return out
}

func (s Scenario) Targets() []float64 {
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

// Shares returns the actors' shares of the I/O of all actors in a sample, 0..1, in
// the scenario's order.
func (s Scenario) Shares(sample account.Sample) []float64 {
	shares := make([]float64, len(s.Actors))
	var sum float64
	for n, actor := range s.Actors {
		shares[n] = float64(sample.Container(actor.Name).Bytes())
		sum += shares[n]
	}
	for n := range shares {
		if sum > 0 {
			shares[n] /= sum
		}
	}
	return shares
}

// WriteTable prints the phases as a table.
func (s Scenario) WriteTable(w io.Writer, phases []Phase) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\ncontainer\ttarget\tshare\tcharged\tjournal\tmetadata\tuncharged\tMB\t")
	mb := func(bytes uint64) string { return fmt.Sprintf("%.1f", float64(bytes)/1e6) }
	summary := s.Summarize(phases)
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

// DiskText and divider describe the disk of the scenario as text.
func (s Scenario) DiskText() string {
	if s.Disk != nil {
		return fmt.Sprintf("%s, %.1f MB/s", s.Disk.Node, float64(s.Disk.BytesPerSecond)/1e6)
	}
	return fmt.Sprintf("simulated: %.0f MB/s, full-stroke seek %.1f ms, track-to-track %.1f ms",
		s.Parameters.BandwidthBytesPerSecond/1e6, s.Parameters.FullStrokeSeekSeconds*1e3, s.Parameters.TrackToTrackSeekSeconds*1e3)
}

func (s Scenario) DividerText() string {
	if s.Disk != nil && s.Disk.Divider != fixture.BFQ {
		model, qos := s.Disk.Cost()
		return "none, io.cost.model: " + model + ", io.cost.qos: " + qos
	}
	if s.unweighted() {
		return s.Scheduler
	}
	return fixture.Settings(s.Tunables)
}

// Recording returns the phase's samples with cgroups and a device that are the same
// in each run: "/A" for the actor A, and "disk".
func (p Phase) Recording() []account.Sample {
	samples := p.SamplesByName("disk")
	for _, sample := range samples {
		for _, device := range sample.Devices {
			for n := range device.Containers {
				device.Containers[n].Cgroup = "/" + strings.TrimPrefix(device.Containers[n].Name, "/")
			}
		}
	}
	return samples
}

// SamplesByName replaces the actors' cgroups by their names, because cgroups differ
// in each run. It replaces the device's name, too.
func (p Phase) SamplesByName(device string) []account.Sample {
	out := make([]account.Sample, len(p.Samples))
	for i, sample := range p.Samples {
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
