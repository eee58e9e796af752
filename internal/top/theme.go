package top

import (
	"charm.land/lipgloss/v2"
)

// Theme is the style of the parts of the screen. A nil field leaves the text
// unchanged, so the zero Theme is plain text.
type Theme struct {
	Title, Heading, Sorted, Cursor, Warning, Quiet func(string) string
}

// MonoTheme uses bold and reverse but no colour, for NO_COLOR.
func MonoTheme() Theme {
	return Theme{
		Title:   style(lipgloss.NewStyle().Bold(true)),
		Heading: style(lipgloss.NewStyle().Reverse(true)),
		Sorted:  style(lipgloss.NewStyle().Reverse(true).Bold(true).Underline(true)),
		Cursor:  style(lipgloss.NewStyle().Reverse(true)),
		Warning: style(lipgloss.NewStyle().Bold(true)),
	}
}

// ColorTheme uses the 16 colours that the user's terminal theme defines.
func ColorTheme() Theme {
	return Theme{
		Title:   style(lipgloss.NewStyle().Bold(true)),
		Heading: style(lipgloss.NewStyle().Reverse(true)),
		Sorted:  style(lipgloss.NewStyle().Reverse(true).Foreground(lipgloss.Cyan)),
		Cursor:  style(lipgloss.NewStyle().Reverse(true)),
		Warning: style(lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Red)),
		Quiet:   style(lipgloss.NewStyle().Foreground(lipgloss.BrightBlack)),
	}
}

func style(s lipgloss.Style) func(string) string {
	return func(text string) string { return s.Render(text) }
}

func paint(with func(string) string, text string) string {
	if with == nil || text == "" {
		return text
	}
	return with(text)
}
