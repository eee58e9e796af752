package container

import (
	"math"
	"path"
	"regexp"
	"strings"
)

// CheckPattern returns [path.ErrBadPattern] for what [Matches] takes for no pattern.
func CheckPattern(pattern string) error {
	_, err := path.Match(pattern, "")
	return err
}

// Matches reports whether a pattern matches the path of a cgroup or the name of a container. It
// is a pattern as of [path.Match] ("*" does not cross "/"), in which what systemd escaped in the
// name of a unit, such as \x2d, stands for itself. A bad pattern matches nothing.
func Matches(pattern, text string) bool {
	if strings.Contains(pattern, `\x`) {
		pattern = unitEscape.ReplaceAllStringFunc(pattern, quoteUnitEscape)
	}
	ok, err := path.Match(pattern, text)
	return ok && err == nil && len(text) <= math.MaxUint16
}

// unitEscape finds a character that systemd escaped in the name of a unit, such as \x2d for "-", and
// pairs of a \ and another character, so that a \ which is quoted already begins none.
var unitEscape = regexp.MustCompile(`\\x[0-9a-f]{2}|\\.`)

// quoteUnitEscape quotes the \ of what systemd escaped, which in a pattern would be a plain "x".
func quoteUnitEscape(pair string) string {
	if len(pair) == len(`\x2d`) && pair[1] == 'x' {
		return `\` + pair
	}
	return pair
}
