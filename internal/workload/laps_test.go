package workload

import (
	"testing"
	"time"
)

func TestATypicalCallIsTheLowerQuartile(t *testing.T) {
	// Half of the calls are delayed, in any order.
	l := laps{each: []time.Duration{90, 11, 70, 10, 80, 12, 60, 13}}
	if got := l.typical(); got != 12 {
		t.Errorf("%v, want 12ns", got)
	}
	if got := new(laps).typical(); got != 0 {
		t.Errorf("without calls: %v", got)
	}
}

func TestAJobMeasuresTypicalCallsOnlyIfAskedTo(t *testing.T) {
	for _, typical := range []bool{false, true} {
		job := Job{Operation: Mkdir, In: t.TempDir(), Count: 8, Typical: typical}
		result, err := run(t.Context(), Spec{Jobs: []Job{job}})
		if err != nil {
			t.Fatal(err)
		}
		if (result.TypicalCallSeconds > 0) != typical || result.TypicalCallSeconds > result.CallSeconds {
			t.Errorf("typical %v: %+v", typical, result)
		}
	}
}
