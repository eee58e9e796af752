package test

import (
	"slices"
	"testing"
)

// Each case includes ext4nvj, and all cases of the quick form together include each
// system.
func TestTheQuickFormHasEachSystem(t *testing.T) {
	t.Setenv(systemsVariable, "")
	t.Setenv("DAYBOOK_VM_LONG", "")
	seen := map[string]int{}
	for _, c := range cases {
		of := forOneRun(c.name, c.systems)
		if len(of) > 2 || !slices.ContainsFunc(of, system.ours) {
			t.Errorf("%s runs on %v", c.name, of)
		}
		for _, s := range of {
			if !slices.Contains(c.systems, s) {
				t.Errorf("%s runs on %s, which is not one of its systems", c.name, s.name)
			}
			seen[s.name]++
		}
	}
	for _, s := range all {
		if seen[s.name] < 3 {
			t.Errorf("%s runs %d cases", s.name, seen[s.name])
		}
	}
	t.Setenv("DAYBOOK_VM_LONG", "1")
	if of := forOneRun(cases[0].name, all); len(of) != len(all) {
		t.Errorf("the long form runs on %v", of)
	}
}
