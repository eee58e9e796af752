// Package safetext escapes unprintable characters in untrusted texts, such as the names of
// cgroups, containers and disks, and quotes them in printed commands.
package safetext

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMarks is the maximum number of combining marks after one letter.
const maxMarks = 2

// Line makes an untrusted text safe for a terminal and for a figure, in one line.
// Characters that could control the terminal, hide, or overwrite other text (controls,
// escape sequences, bidirectional overrides, invisible runes, many combining marks,
// invalid UTF-8) are escaped as \x1b, \u202e and so on.
func Line(text string) string {
	if isPlainASCII(text) {
		return text
	}
	var b strings.Builder
	marks := maxMarks // so that a text cannot start with one
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		mark := unicode.Is(unicode.M, r)
		if mark {
			marks++
		} else {
			marks = 0
		}
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case !unicode.IsPrint(r) || mark && marks > maxMarks || isVariationSelector(r):
			if r < 0x80 {
				fmt.Fprintf(&b, `\x%02x`, r)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
			marks = maxMarks
		default:
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.String()
}

// Lines is like [Line] for a text that may have several lines, such as an error of several
// causes, or the output of a tool. Line ends and tabs stay.
func Lines(text string) string { return between.ReplaceAllStringFunc(text, Line) }

// between matches what is between line ends and tabs.
var between = regexp.MustCompile(`[^\n\t]+`)

// isVariationSelector: terminals disagree about the width of the character with
// it.
func isVariationSelector(r rune) bool {
	return r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0100 && r <= 0xe01ef
}

func isPlainASCII(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
