package doctor

import "fmt"

// Severity says how much a finding matters.
type Severity string

// The severities. Missing is what does not work; a note is what works with a limit, or
// what is good to know.
const (
	OK      Severity = "ok"
	Note    Severity = "note"
	Missing Severity = "missing"
)

// Finding is one thing that works or does not.
type Finding struct {
	// ID names what was looked at, and does not change between versions: "btf",
	// "weights". Several findings may have the same.
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	// Subject is the disk, file system, runtime or cgroup, "" for the host.
	Subject string `json:"subject"`
	// What is seen, and Why it matters ("" for what works).
	What string `json:"what"`
	Why  string `json:"why"`
	// Command fixes it; "" where none does.
	Command string `json:"command"`
}

// Works says whether nothing is missing.
func Works(findings []Finding) bool {
	for _, f := range findings {
		if f.Severity == Missing {
			return false
		}
	}
	return true
}

func ok(id, subject, what string, values ...any) Finding {
	return Finding{ID: id, Severity: OK, Subject: subject, What: fmt.Sprintf(what, values...)}
}

func note(id, subject, what, why, command string) Finding {
	return Finding{ID: id, Severity: Note, Subject: subject, What: what, Why: why, Command: command}
}

func missing(id, subject, what, why, command string) Finding {
	return Finding{ID: id, Severity: Missing, Subject: subject, What: what, Why: why, Command: command}
}
