package container

import "testing"

func TestTheNameOfAUnitMatchesAsSystemdEscapesIt(t *testing.T) {
	const vm = `/machine.slice/machine-qemu\x2d1\x2ddb.scope`
	for pattern, want := range map[string]bool{
		vm: true, `/machine.slice/machine-qemu\x2d*`: true, `/machine.slice/machine-qemu\\x2d*`: true, `/*/machine-[a-q]emu\x2d?\x2ddb.scope`: true,
		`/machine.slice/machine-qemux2d*`: false, `/machine.slice/machine-qemu\x2e*`: false, `/machine.slice/machine-qemu\\\x2d*`: false, "*": false, "[": false,
	} {
		if matched := Matches(pattern, vm); matched != want {
			t.Errorf("%s: %v; want %v", pattern, matched, want)
		}
	}
	for _, pattern := range []string{`/a\*b`, `/a\[b\]`, `/x[\x2d]`} { // as in any pattern
		for text, want := range map[string]bool{"/a*b": pattern == `/a\*b`, "/a[b]": pattern == `/a\[b\]`, "/xd": pattern == `/x[\x2d]`, "/ab": false} {
			if matched := Matches(pattern, text); matched != want {
				t.Errorf("%s, %s: %v; want %v", pattern, text, matched, want)
			}
		}
	}
}

func TestABadPatternIsAnError(t *testing.T) {
	for pattern, bad := range map[string]bool{"[": true, `a\`: true, "": false, "db-*": false, `db\x2d1`: false, `/a/[b-c]?`: false} {
		if err := CheckPattern(pattern); (err != nil) != bad {
			t.Errorf("%q: %v; want an error: %v", pattern, err, bad)
		}
	}
}
