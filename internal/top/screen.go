package top

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/digits"
)

// warnShareGap is the difference between a share and its target from which it
// is marked: 5 points, the project's own bound for 9 of 10 intervals.
const warnShareGap = 0.05

// Screen is all the state that determines the display.
type Screen struct {
	// Sample is the displayed sample; nil before the first.
	Sample *account.Sample
	// Width and Height of the terminal are in cells.
	Width, Height int
	// Sort is the Key of the sort column; Reverse shows the least first.
	Sort    string
	Reverse bool
	// Device is the name of the chosen device; the first device if it is
	// missing.
	Device string
	// Cursor is the row of the chosen container, Offset the first row shown.
	Cursor, Offset int
	Paused, Help   bool
	// Waits shows who waits for the journal in place of the disks.
	Waits bool
	// Origin is the source of the samples, such as a recording's name.
	Origin string
	// Notice is the last warning, "" for none.
	Notice string
	// IntervalSeconds is the duration of the first sample.
	IntervalSeconds float64
	Theme           Theme
}

// device returns the chosen device and its index, nil if there is none.
func (s Screen) device() (*account.Device, int) {
	if s.Sample == nil || len(s.Sample.Devices) == 0 {
		return nil, 0
	}
	i := slices.IndexFunc(s.Sample.Devices, func(d account.Device) bool { return d.Device == s.Device })
	i = max(i, 0)
	return &s.Sample.Devices[i], i
}

func (s Screen) sortColumn() Column {
	return Columns[max(columnByKey(s.Sort), 0)]
}

// layout returns the number of lines of each part of the screen.
func (s Screen) layout() (head, rows, foot int) {
	switch {
	case s.Height >= 10:
		head, foot = 3, 2
	case s.Height >= 7:
		head, foot = 2, 1
	case s.Height >= 4:
		head = 1
	}
	// One line is for the headings of the table.
	return head, max(s.Height-head-foot-1, 0), foot
}

// clamped keeps cursor and offset within the rows.
func (s Screen) clamped() Screen {
	device, _ := s.device()
	total := 0
	if device != nil {
		total = len(device.Containers)
	}
	_, rows, _ := s.layout()
	s.Cursor = max(min(s.Cursor, total-1), 0)
	s.Offset = max(min(s.Offset, s.Cursor, total-1), s.Cursor-rows+1, 0)
	// Show no empty rows at the end while there are containers above.
	s.Offset = max(min(s.Offset, total-rows), 0)
	return s
}

// Render returns the whole screen: at most Height lines of at most Width cells,
// with no line feed after the last one.
func (s Screen) Render() string {
	if s.Width <= 0 || s.Height <= 0 {
		return ""
	}
	s = s.clamped()
	var lines []string
	switch {
	case s.Help:
		lines = s.help()
	case s.Sample == nil:
		lines = []string{s.line(s.Theme.Title, "daybook top"), "",
			s.line(nil, fmt.Sprintf("measuring; the first account comes after %s s", digits.Of(s.IntervalSeconds, 3)))}
		lines = append(lines, s.line(s.Theme.Warning, s.Notice))
	case s.Waits:
		lines = s.waits()
	default:
		lines = s.table()
	}
	return strings.Join(lines[:min(len(lines), s.Height)], "\n")
}

// line is one line of text, sanitized, cut and styled.
func (s Screen) line(with func(string) string, text string) string {
	return paint(with, cut(Safe(text), s.Width))
}

func (s Screen) table() []string {
	head, rows, foot := s.layout()
	device, index := s.device()
	lines := s.head(device, index)[:head]
	if device == nil {
		lines = append(lines, s.line(nil, "no disk with a journalling file system is mounted"))
		return append(lines, s.foot(account.Container{})[:foot]...)
	}
	columns := fit(s.Width)
	lines = append(lines, s.headings(columns))
	containers := sorted(device.Containers, s.sortColumn(), s.Reverse)
	var chosen account.Container
	for i := range rows {
		row := s.Offset + i
		if row >= len(containers) {
			lines = append(lines, "")
			continue
		}
		lines = append(lines, s.row(columns, containers[row], row == s.Cursor))
		if row == s.Cursor {
			chosen = containers[row]
		}
	}
	return append(lines, s.foot(chosen)[:foot]...)
}

// head returns the lines about the device: exactly three.
func (s Screen) head(device *account.Device, index int) []string {
	title := "daybook top"
	if device == nil {
		return []string{s.line(s.Theme.Title, title), "", ""}
	}
	parts := []string{title, deviceName(*device)}
	if n := len(s.Sample.Devices); n > 1 {
		parts = append(parts, fmt.Sprintf("disk %d of %d", index+1, n))
	}
	if s.Paused {
		parts = append(parts, "PAUSED")
	}
	order := ""
	if s.Reverse {
		order = " reversed"
	}
	parts = append(parts, fmt.Sprintf("%s, %s s", s.Sample.Time.Format("15:04:05"), digits.Of(s.Sample.IntervalSeconds, 3)),
		s.Sample.Estimator, "by "+s.sortColumn().Key+order)
	if s.Origin != "" {
		parts = append(parts, s.Origin)
	}
	lines := []string{s.line(s.Theme.Title, strings.Join(parts, "  "))}
	figures := deviceLines(*device, s.Sample.IntervalSeconds)
	unknown := unknownTo(*s.Sample) + controlNotice(device.Control)
	with := s.Theme.Warning
	if device.LostEvents == 0 && unknown == "" {
		with = nil
	}
	return append(lines, s.line(nil, figures[0]), s.line(with, figures[1]+unknown))
}

// controlNotice says how daybook control enforces the shares; "" for weights
// that the scheduler follows, and for a disk that is not controlled.
func controlNotice(c *account.Control) string {
	switch {
	case c == nil:
		return ""
	case c.WeightsIgnored && c.Actuator == account.ActuatorLimits:
		return "  weights do not hold the shares: limits do"
	case c.WeightsIgnored:
		return "  WEIGHTS DO NOT HOLD THE SHARES"
	case c.Actuator == account.ActuatorLimits:
		return "  limits hold the shares"
	}
	return ""
}

// deviceName is the displayed name of a device: its name and number, and the
// volume on it.
func deviceName(d account.Device) string {
	name := d.Device + " " + d.Dev
	if d.Volume != "" {
		name += " volume " + d.Volume
	}
	if d.Note != "" {
		name += " (" + d.Note + ")"
	}
	return name
}

// unknownTo lists what the account misses; "" if nothing.
func unknownTo(s account.Sample) string {
	text := ""
	if s.OwnersForgotten > 0 {
		text += "  owners forgotten " + count(s.OwnersForgotten)
	}
	if s.CgroupsSkipped > 0 {
		text += "  cgroups skipped " + count(s.CgroupsSkipped)
	}
	return text
}

// deviceLines are the two lines of numbers about a device.
func deviceLines(d account.Device, seconds float64) [2]string {
	elsewhere := ""
	if d.JournalElsewhereBytes > 0 {
		elsewhere = fmt.Sprintf(" (%s/s of it on another disk)", rate(float64(d.JournalElsewhereBytes), seconds))
	}
	logged, inMemory := d.JournalBytes, ""
	for _, m := range d.MemoryJournals {
		logged += m.LoggedBytes
		elsewhere += fmt.Sprintf(" (%s/s of it in memory, by %s)", rate(float64(m.LoggedBytes), seconds), m.Filesystem)
		inMemory += fmt.Sprintf("  %s: handles %s/s commits %s/s", m.Filesystem, digits.Of(float64(m.Handles)/seconds, 3), digits.Of(float64(m.Commits)/seconds, 3))
		if m.RingLines > 0 {
			inMemory += fmt.Sprintf(" used %s of %s lines lag %d", percent(float64(m.UsedLines)/float64(m.RingLines)), count(m.RingLines), m.LagTransactions)
		}
	}
	part := ""
	if d.DiskBytes > 0 {
		part = " (" + percent(float64(d.UnaccountedBytes)/float64(d.DiskBytes)) + ")"
	}
	return [2]string{
		fmt.Sprintf("disk %s/s  journal %s/s%s  metadata %s/s  unaccounted %s/s%s",
			rate(float64(d.DiskBytes), seconds), rate(float64(logged), seconds), elsewhere,
			rate(float64(d.MetadataBytes), seconds), rate(float64(d.UnaccountedBytes), seconds), part),
		fmt.Sprintf("transactions %s/s  mean commit %s  lost events %s%s",
			digits.Of(float64(d.Transactions)/seconds, 3), duration(d.CommitSeconds), count(d.LostEvents), inMemory),
	}
}

// headings is the line above the table. The last column has no fixed width.
func (s Screen) headings(columns []Column) string {
	var b strings.Builder
	for i, c := range columns {
		text, with := right(c.title, c.width), s.Theme.Heading
		if i == len(columns)-1 {
			text = left(c.title, s.Width-lastColumn(columns))
		}
		if c.Key == s.sortColumn().Key {
			with = s.Theme.Sorted
		}
		if i > 0 {
			b.WriteString(paint(s.Theme.Heading, " "))
		}
		b.WriteString(paint(with, text))
	}
	return b.String()
}

// lastColumn is the cell where the last column starts.
func lastColumn(columns []Column) int {
	x := 0
	for _, c := range columns[:len(columns)-1] {
		x += c.width + 1
	}
	return x
}

func (s Screen) row(columns []Column, c account.Container, chosen bool) string {
	var b strings.Builder
	off := c.TargetShare > 0 && math.Abs(c.Share-c.TargetShare) > warnShareGap
	for i, column := range columns {
		text := column.cell(c, s.Sample.IntervalSeconds)
		if i == len(columns)-1 {
			text = cut(text, s.Width-lastColumn(columns))
			if chosen {
				text = left(text, s.Width-lastColumn(columns))
			}
		} else {
			text = right(text, column.width) + " "
		}
		switch {
		case chosen:
		case column.Key == "share" && off:
			text = paint(s.Theme.Warning, text)
		case c.Cgroup == account.RootCgroup:
			text = paint(s.Theme.Quiet, text)
		}
		b.WriteString(text)
	}
	if chosen {
		return paint(s.Theme.Cursor, b.String())
	}
	return b.String()
}

// foot returns the last two lines: the notice, or name and path of the chosen
// container as far as they fit, and the keys.
func (s Screen) foot(chosen account.Container) []string {
	first := ""
	switch {
	case s.Notice != "":
		first = s.line(s.Theme.Warning, s.Notice)
	case chosen.Name != "" && chosen.Name != chosen.Cgroup:
		first = s.line(s.Theme.Quiet, chosen.Name+"  cgroup "+chosen.Cgroup)
	case chosen.Cgroup != "":
		first = s.line(s.Theme.Quiet, "cgroup "+chosen.Cgroup)
	}
	return []string{first, s.line(s.Theme.Quiet, "q quit  ? help  s sort  r reverse  d next disk  b waits  p pause  arrows move")}
}
