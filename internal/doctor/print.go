package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/safetext"
)

// Report is what doctor says of a host.
type Report struct {
	// OK: nothing is missing.
	OK             bool           `json:"ok"`
	Findings       []Finding      `json:"findings"`
	Recommendation Recommendation `json:"recommendation"`
	Facts          Facts          `json:"facts"`
}

// Diagnose examines facts.
func Diagnose(f Facts) Report {
	findings := Examine(f)
	return Report{OK: Works(findings), Findings: findings, Recommendation: Recommend(f), Facts: f}
}

// Write prints a report for a person: what works in a line each, then the problems with
// their commands, then the layout.
func (r Report) Write(w io.Writer) error {
	out := &printer{w: w}
	for _, f := range r.Findings {
		if f.Severity == OK {
			out.line("ok       %s%s", subject(f), f.What)
		}
	}
	for _, severity := range []Severity{Note, Missing} {
		for _, same := range alike(r.Findings, severity) {
			f := same[0]
			var subjects []string
			for _, one := range same {
				subjects = append(subjects, one.Subject)
			}
			f.Subject = shortList(subjects, 8)
			out.line("%-8s %s%s", f.Severity, subject(f), f.What)
			if f.Why != "" {
				out.wrapped(f.Why)
			}
			for _, one := range same {
				if one.Command != "" {
					out.line("         $ %s", one.Command)
				}
			}
		}
	}
	out.line("")
	out.line("Recommended:")
	var done []DiskAdvice
	for _, d := range r.Recommendation.Disks {
		same := func(other DiskAdvice) bool { return other.Scheduler == d.Scheduler && other.Why == d.Why }
		if slices.ContainsFunc(done, same) {
			continue
		}
		done = append(done, d)
		var disks []string
		for _, other := range r.Recommendation.Disks {
			if same(other) {
				disks = append(disks, other.Disk)
			}
		}
		what := d.Actuator
		if d.Scheduler != "" {
			what += " by " + d.Scheduler
		}
		out.advice(shortList(disks, 8)+": "+what, d.Why, d.Commands)
	}
	for _, v := range r.Recommendation.Volumes {
		what := "volumes: " + v.Backing
		if v.On != "" {
			what += " on " + v.On
		}
		out.advice(what, v.Why, v.Commands)
	}
	return out.err
}

// alike puts findings together that differ in the subject and the command only, as many
// disks of a host have them.
func alike(findings []Finding, severity Severity) [][]Finding {
	var groups [][]Finding
	for _, f := range findings {
		if f.Severity != severity {
			continue
		}
		n := slices.IndexFunc(groups, func(g []Finding) bool { return g[0].ID == f.ID && g[0].What == f.What && g[0].Why == f.Why })
		if n < 0 {
			groups, n = append(groups, nil), len(groups)
		}
		groups[n] = append(groups[n], f)
	}
	return groups
}

func subject(f Finding) string {
	if f.Subject == "" {
		return ""
	}
	return f.Subject + ": "
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, values ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, safetext.Line(strings.TrimRight(fmt.Sprintf(format, values...), " ")))
	}
}

// width is that of a narrow terminal.
const width = 100

// wrapped prints a text below a finding.
func (p *printer) wrapped(text string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width-9 {
			p.line("         %s", line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	p.line("         %s", line)
}

func (p *printer) advice(what, why string, commands []string) {
	p.line("  %s", what)
	p.wrapped(why)
	for _, command := range commands {
		p.line("         $ %s", command)
	}
}
