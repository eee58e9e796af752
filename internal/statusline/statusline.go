// Package statusline shows the progress of a command in the last line of a terminal.
package statusline

import (
	"fmt"
	"io"
	"os"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
)

// Line is the last line of an output. It is not safe for concurrent use.
type Line struct {
	out      io.Writer
	terminal bool
	shown    bool
}

// On returns the line of an output.
func On(out io.Writer) *Line {
	file, ok := out.(*os.File)
	return &Line{out: out, terminal: ok && term.IsTerminal(file.Fd())}
}

// OnTerminal returns the line of a terminal.
func OnTerminal(out io.Writer) *Line { return &Line{out: out, terminal: true} }

// Terminal reports whether the output is a terminal. Elsewhere nothing is shown.
func (l *Line) Terminal() bool { return l.terminal }

// Shown reports whether there is a text now.
func (l *Line) Shown() bool { return l.shown }

// Show replaces the text. It shows what fits into the line: only the last one of several could be
// cleared again.
func (l *Line) Show(text string) {
	if l.terminal {
		fmt.Fprintf(l.out, "%s%s", clear, l.fit(text))
		l.shown = true
	}
}

// fit shortens a text to the width of the terminal, as far as that is known.
func (l *Line) fit(text string) string {
	file, ok := l.out.(*os.File)
	if !ok {
		return text
	}
	width, _, err := term.GetSize(file.Fd())
	if err != nil || width <= 0 {
		return text
	}
	return ansi.Truncate(text, width-1, "…")
}

// End removes the text, so that other output can follow.
func (l *Line) End() {
	if l.shown {
		fmt.Fprint(l.out, clear)
		l.shown = false
	}
}

// clear moves to the start of the line and clears it.
const clear = "\r\x1b[K"
