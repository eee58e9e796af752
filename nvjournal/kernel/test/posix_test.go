package test

import (
	"testing"

	"github.com/daybook-project/daybook/nvjournal/kernel/test/posix"
)

// System calls return what the table says.
func systemCalls(t *testing.T, s system) {
	v := s.make(t, plan{})
	steps, wrong, err := posix.Run(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
	t.Logf("%d steps", steps)
	v.end(nil)
}
