package main

import (
	"strings"
	"testing"
)

// Such values are refused before the demo runs, also without root. The picture has the name of
// the report with another suffix, and would replace it.
func TestWrongOptionsOfTheDemoAreUsageErrors(t *testing.T) {
	for _, words := range [][]string{
		{"--seconds", "NaN"}, {"--seconds", "4"}, {"--seconds", "3601"}, {"--interval", "6s", "--seconds", "5"}, {"--law", "none"},
		{"--seconds", "5", "--output", "/no/such/directory/demo.svg"},
	} {
		if _, err := execute(t, append([]string{"demo"}, words...)...); exitCode(err) != exitUsage {
			t.Errorf("demo %s: exit code %d (%v), want %d", strings.Join(words, " "), exitCode(err), err, exitUsage)
		}
	}
}
