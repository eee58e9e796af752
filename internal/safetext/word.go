package safetext

import "strings"

// plain are the characters besides letters and digits that a shell takes as they are.
const plain = "_@%+=:,./-"

// Word writes a text as one word of a command that is printed to be copied into a shell:
// as it is, or in single quotes. A shell would remove the backslashes in the names of
// systemd's units, and take a "!" in the name of a disk for its history.
func Word(text string) string {
	special := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(plain, r)
	}
	if text != "" && strings.IndexFunc(text, special) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
