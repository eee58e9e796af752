package top

import "fmt"

// keyHelp is only the text of the help screen; model.go handles the keys.
var keyHelp = [][2]string{
	{"q  ctrl+c", "quit"},
	{"s  S", "sort by the next or previous column"},
	{"r", "reverse the order"},
	{"d  D", "show the next or previous disk"},
	{"b", "show who waits for whom (--waits), or the disks"},
	{"p  space", "pause or continue"},
	{"up down pgup pgdn home end", "choose a container; its cgroup is shown below"},
	{"?  esc", "open or close this help"},
}

func (s Screen) help() []string {
	lines := []string{s.line(s.Theme.Title, "daybook top: help. K, M, G are powers of 1024; rates are means of the interval.")}
	for _, k := range keyHelp {
		lines = append(lines, s.line(nil, fmt.Sprintf("  %-27s %s", k[0], k[1])))
	}
	for _, c := range Columns {
		lines = append(lines, s.line(nil, fmt.Sprintf("  %-10s %s", c.title, c.meaning)))
	}
	return append(lines, s.line(nil, "unaccounted: the I/O of the disk minus all lines; counters are not read at once."))
}
