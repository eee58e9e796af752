package shares

import (
	"github.com/daybook-project/daybook/internal/experiment/scenario"
	"github.com/daybook-project/daybook/internal/figure"
	"github.com/daybook-project/daybook/internal/kernel"
)

// Drawing is a report and its picture.
type Drawing struct{ HTML, SVG []byte }

// Draw draws the phases like Figs. 2, 3, 5 and 6 of the paper; command is the
// command that repeats them.
func Draw(s scenario.Scenario, phases []scenario.Phase, command string) (Drawing, error) {
	if len(phases) == 0 {
		return Drawing{}, nil
	}
	shares := figure.Shares{Device: phases[0].Device.Device}
	for n, target := range s.Targets() {
		shares.Containers = append(shares.Containers, figure.Container{Cgroup: s.Actors[n].Name, Name: s.Actors[n].Name, Target: target})
	}
	for _, phase := range phases {
		title := scenario.Uncontrolled
		if phase.Name != scenario.Uncontrolled {
			title = "controlled, " + phase.Name + " law"
		}
		shares.Phases = append(shares.Phases, figure.Phase{Name: title, Samples: phase.SamplesByName(shares.Device)})
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
		Lead:   "Containers with configured shares of one disk. Some of them make metadata, whose journal writes are charged to the root cgroup.",
		Shares: shares,
		Figures: []figure.Figure{
			{Title: "I/O over time, and how often which share", Text: "As Figs. 2, 3, 5 and 6 of the paper.", SVG: picture},
			{Title: "What it consists of, and the weights in force", SVG: composition},
		},
		Made: []figure.Fact{
			{Name: "command", Value: command},
			{Name: "scenario", Value: s.Name},
			{Name: "disk", Value: s.DiskText()},
			{Name: "scheduler", Value: s.DividerText() + ", in all phases"},
			{Name: "kernel", Value: kernel.Release()},
		},
	}
	html, err := report.HTML()
	return Drawing{HTML: html, SVG: picture}, err
}
