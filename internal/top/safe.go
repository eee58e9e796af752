package top

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/daybook-project/daybook/internal/safetext"
)

// Safe makes an untrusted text safe for a terminal, in one line.
func Safe(text string) string { return safetext.Line(text) }

// cut shortens a safe text to at most width cells and ends it with "~" if
// something is missing.
func cut(text string, width int) string {
	if width <= 0 {
		return ""
	}
	return ansi.Truncate(text, width, "~")
}

// right puts a text at the right end of width cells.
func right(text string, width int) string {
	text = cut(text, width)
	return strings.Repeat(" ", width-ansi.StringWidth(text)) + text
}

// left puts a text at the left end of width cells.
func left(text string, width int) string {
	text = cut(text, width)
	return text + strings.Repeat(" ", width-ansi.StringWidth(text))
}
