package control

import (
	"errors"
	"testing"
)

func TestAnErrorIsNewOnceUntilItEndsOrIsAnotherOne(t *testing.T) {
	full, denied := errors.New("full"), errors.New("denied")
	var o once
	for n, step := range []struct {
		err  error
		want bool
	}{{nil, false}, {full, true}, {full, false}, {denied, true}, {full, true}, {nil, false}, {nil, false}, {full, true}} {
		if got := o.isNewError(step.err); got != step.want {
			t.Errorf("step %d, %v: new %v, want %v", n, step.err, got, step.want)
		}
	}
}

func TestErrorsOfCgroupsAreKeptApart(t *testing.T) {
	l := logged{cgroups: map[string]once{}}
	full := errors.New("full")
	if !l.isNewOf("/a", full) || l.isNewOf("/a", full) || !l.isNewOf("/b", full) {
		t.Errorf("%+v: want each to be new once", l)
	}
	l.ended("/a")
	if !l.isNewOf("/a", full) || l.isNewOf("/b", full) {
		t.Errorf("%+v: want only that of /a to be new again", l)
	}
	l.forget(map[string]uint64{"/b": 1})
	if !l.isNewOf("/a", full) || l.isNewOf("/b", full) {
		t.Errorf("%+v: want only that of /a, which was gone, to be new again", l)
	}
}
