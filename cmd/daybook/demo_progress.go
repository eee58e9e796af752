package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
	"github.com/daybook-project/daybook/internal/statusline"
)

// demoProgress prints the shares live: one line for each sample and, on a
// terminal, a last line with the current step.
type demoProgress struct {
	out      io.Writer
	step     *statusline.Line
	scenario scenario.Scenario
	phase    string
}

func newDemoProgress(out io.Writer, of scenario.Scenario) *demoProgress {
	return &demoProgress{out: out, step: statusline.On(out), scenario: of}
}

// barWidth is the width of the whole disk, in characters.
const barWidth = 40

func (p *demoProgress) show(phase, what string, sample *account.Sample) {
	// Before the first phase and after the last one there is none.
	if phase != "" && phase != p.phase {
		p.end()
		p.phase = phase
		title := "uncontrolled: weights as configured"
		if phase != scenario.Uncontrolled {
			title = fmt.Sprintf("controlled: Daybook corrects the weights every %v, by the %s law", p.scenario.Step(phase), phase)
		}
		fmt.Fprintf(p.out, "%s\n", title)
	}
	if sample == nil {
		p.step.Show("  " + what + "…")
		return
	}
	p.end()
	shares := p.scenario.Shares(*sample)
	var bar, text strings.Builder
	for i, actor := range p.scenario.Actors {
		bar.WriteString(strings.Repeat([]string{"█", "░", "▓", "▒"}[i%4], int(shares[i]*barWidth+0.5)))
		fmt.Fprintf(&text, "  %s %5.1f %%", actor.Name, 100*shares[i])
	}
	d := sample.Devices[0]
	fmt.Fprintf(p.out, "  %s%s   disk %5.1f MB/s, journal %4.1f, metadata in place %4.1f\n", bar.String(), text.String(),
		float64(d.DiskBytes)/sample.IntervalSeconds/1e6, float64(d.JournalBytes)/sample.IntervalSeconds/1e6,
		float64(d.MetadataBytes)/sample.IntervalSeconds/1e6)
}

// end removes the last line.
func (p *demoProgress) end() { p.step.End() }
