package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/statusline"
)

// When progress is reported: not at first, because most operations are short.
const (
	progressQuiet    = 2 * time.Second
	progressRedraw   = 200 * time.Millisecond
	progressLine     = 10 * time.Second
	progressBarCells = 30
)

// workProgress reports the progress of a long operation: on a terminal by a bar, elsewhere
// by a line now and then.
type workProgress struct {
	out      io.Writer
	bar      *statusline.Line
	what     string
	now      func() time.Time
	began    time.Time
	reported time.Time
}

func newWorkProgress(out io.Writer, what string) *workProgress {
	p := &workProgress{out: out, bar: statusline.On(out), what: what, now: time.Now}
	p.began = p.now()
	p.reported = p.began
	return p
}

// show is a volume.Progress.
func (p *workProgress) show(done, total uint64) {
	now := p.now()
	passed := now.Sub(p.began)
	switch {
	case passed < progressQuiet, total == 0:
		return
	case p.bar.Terminal() && (!p.bar.Shown() || now.Sub(p.reported) >= progressRedraw):
		p.bar.Show(progressText(p.what, done, total, passed, true))
	case !p.bar.Terminal() && now.Sub(p.reported) >= progressLine:
		fmt.Fprintln(p.out, progressText(p.what, done, total, passed, false))
	default:
		return
	}
	p.reported = now
}

// end removes the bar.
func (p *workProgress) end() { p.bar.End() }

// progressText formats the progress after some time, such as
// "writing db1: 45 % of 10GiB, 120MiB/s, 47s left".
func progressText(what string, done, total uint64, passed time.Duration, bar bool) string {
	part := min(float64(done)/float64(total), 1)
	var b strings.Builder
	b.WriteString(what)
	b.WriteString(": ")
	if bar {
		filled := int(part * progressBarCells)
		b.WriteString(strings.Repeat("█", filled) + strings.Repeat("░", progressBarCells-filled) + " ")
	}
	rate := float64(done) / passed.Seconds()
	fmt.Fprintf(&b, "%.0f %% of %s, %s/s", 100*part, roundBytes(total), roundBytes(uint64(rate)))
	if done > 0 && done < total {
		left := time.Duration(float64(total-done) / rate * float64(time.Second))
		fmt.Fprintf(&b, ", %v left", left.Round(time.Second))
	}
	return b.String()
}

// roundBytes writes three digits or so, such as "1.5GiB"; formatBytes is exact.
func roundBytes(bytes uint64) string {
	if bytes < 1<<10 {
		return fmt.Sprintf("%dB", bytes)
	}
	value := float64(bytes)
	for _, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		value /= 1 << 10
		if value < 9.95 {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + unit
		}
		if value < 1023.5 || unit == "TiB" {
			return fmt.Sprintf("%.0f%s", value, unit)
		}
	}
	return ""
}
