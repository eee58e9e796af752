package safetext

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestUnprintableCharactersAreEscaped(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"db1 (postgres)":           "db1 (postgres)",
		"Größe 数据":                 "Größe 数据",
		"red \x1b[31m":             `red \x1b[31m`,
		"two\nlines":               `two\x0alines`,
		"\u202etxt.exe":            `\u202etxt.exe`,
		"zero\u200bwidth":          `zero\u200bwidth`,
		"broken \xff":              `broken \xff`,
		"e\u0301\u0302":            "e\u0301\u0302",
		"e\u0301\u0302\u0303":      "e\u0301\u0302" + `\u0303`,
		"\u0301 at the front":      `\u0301 at the front`,
		"a\ufe0f":                  `a\ufe0f`,
		"\U000e0101 supplementary": `\ue0101 supplementary`,
	} {
		if got := Line(text); got != want {
			t.Errorf("%q became %q; want %q", text, got, want)
		}
	}
}

func TestLinesStayLines(t *testing.T) {
	if got, want := Lines("cannot find /a\x1b[2J\xff\n\tcannot find /b\n"), `cannot find /a\x1b[2J\xff`+"\n\tcannot find /b\n"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\u0301\x1b\xff")
	f.Fuzz(func(t *testing.T, text string) {
		got := Line(text)
		if Line(got) != got {
			t.Errorf("%q became %q and then %q", text, got, Line(got))
		}
		if !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\n\r\t\u202e") {
			t.Errorf("%q became %q", text, got)
		}
	})
}
