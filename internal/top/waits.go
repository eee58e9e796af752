package top

import (
	"bufio"
	"fmt"
	"io"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/digits"
)

// maxCauses is how many causes of a waiter are listed one by one.
const maxCauses = 5

// WriteWaits writes who waited for the journal and for whom, as plain text: at
// most limit waiters, the longest first; 0 means all. matching is as in WaitLines. Width
// limits the lines in cells; 0 means no limit.
func WriteWaits(w io.Writer, sample account.Sample, matching string, limit, width int) error {
	out := bufio.NewWriter(w)
	for _, line := range WaitLines(sample, matching, limit) {
		if line = Safe(line); width > 0 {
			line = cut(line, width)
		}
		fmt.Fprintln(out, line)
	}
	return out.Flush()
}

// waits is the screen of who waits for the journal: as many as there is space for.
func (s Screen) waits() []string {
	_, _, foot := s.layout()
	title := fmt.Sprintf("daybook top  waits for the journal  %s, %s s", s.Sample.Time.Format("15:04:05"), digits.Of(s.Sample.IntervalSeconds, 3))
	if s.Paused {
		title += "  PAUSED"
	}
	lines := []string{s.line(s.Theme.Title, title)}
	text := WaitLines(*s.Sample, "", 0)
	if s.Sample.Waiters == nil {
		text = []string{"waits are not measured: start with --waits"}
	}
	for _, line := range text {
		if len(lines) >= s.Height-foot {
			break
		}
		lines = append(lines, s.line(nil, line))
	}
	for len(lines) < s.Height-foot {
		lines = append(lines, "")
	}
	return append(lines, s.foot(account.Container{})[:foot]...)
}

// WaitLines is the text of WriteWaits, with the names as their owners chose them. matching is the
// pattern of the containers that the sample was reduced to; "": it has all.
func WaitLines(sample account.Sample, matching string, limit int) []string {
	var lines []string
	switch {
	case len(sample.Waiters) > 0:
	case matching != "":
		lines = append(lines, fmt.Sprintf("no container that matches %s waited for a journal in the last %s s", matching, digits.Of(sample.IntervalSeconds, 3)))
	default:
		lines = append(lines, fmt.Sprintf("nobody waited for a journal in the last %s s", digits.Of(sample.IntervalSeconds, 3)))
	}
	for i, waiter := range sample.Waiters {
		if limit > 0 && i == limit {
			lines = append(lines, fmt.Sprintf("%d more waited less", len(sample.Waiters)-limit))
			break
		}
		lines = append(lines, waiterLines(waiter, sample.IntervalSeconds)...)
	}
	if sample.WaitsLost > 0 {
		lines = append(lines, fmt.Sprintf("%d waits are missing: there was no space for them in the kernel", sample.WaitsLost))
	}
	if sample.WaitEventsMissed > 0 {
		lines = append(lines, fmt.Sprintf("for %d events the kernel ran no program: waits can be missing, or be in another phase", sample.WaitEventsMissed))
	}
	return lines
}

func waiterLines(w account.Waiter, interval float64) []string {
	call := w.Operation
	switch call {
	case "handle":
		call = "the start of other calls"
	case "write":
		call = "synchronous writes"
	}
	lines := []string{fmt.Sprintf("%s waited %s of the last %s s in %s on %s: %d calls, p50 %s, p99 %s",
		w.Name, duration(w.WaitSeconds), digits.Of(interval, 3), call, w.Device, w.Calls, duration(w.P50Seconds), duration(w.P99Seconds))}
	var others float64
	for i, c := range w.Culprits {
		if i >= maxCauses || c.Seconds < 0.005*w.WaitSeconds {
			others += c.Seconds
			continue
		}
		lines = append(lines, fmt.Sprintf("  %6s  %s", percent(c.Seconds/w.WaitSeconds), causeText(w, c)))
	}
	if others > 0 && others >= 0.005*w.WaitSeconds {
		lines = append(lines, fmt.Sprintf("  %6s  %s", percent(others/w.WaitSeconds), "smaller causes"))
	}
	return lines
}

// causeText says who caused a wait, and how.
func causeText(w account.Waiter, c account.Culprit) string {
	whose := c.Name + "'s "
	switch {
	case c.Cgroup == "":
		whose = "unknown "
	case c.Cgroup == w.Cgroup:
		whose = "its own "
	case c.Cgroup == account.RootCgroup:
		whose = "the root cgroup's "
	}
	switch c.Cause {
	case "lock":
		return whose + "open handles, for which the commit waited"
	case "ordered_data":
		return whose + "ordered data, written before the commit"
	case "log":
		return whose + "metadata, written to the log"
	case "checkpoint":
		return whose + "metadata in a full log: checkpoint"
	case "own_data":
		return "its own data"
	case "flush":
		return "flush of the disk's cache, with the commit record"
	}
	return "no known phase"
}
