package scale

import (
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/internal/needs"
)

func TestScaleCountsEveryCgroupAsActive(t *testing.T) {
	lab := fixturetest.New(t)
	var s Result
	// On a busy host the load may not visit each cgroup in a short interval.
	for interval := 3 * time.Second; s.Active < 100 && interval < time.Minute; interval *= 2 {
		var err error
		s, err = Run(t.Context(), lab, Options{Program: needs.Built(t, "daybook"), Cgroups: 100, Interval: interval, Intervals: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", s)
	}
	if s.Active != 100 {
		t.Errorf("%d of 100 cgroups did I/O", s.Active)
	}
	if s.CPUSeconds <= 0 || s.MapBytes == 0 {
		t.Errorf("not measured: %+v", s)
	}
	if err := s.checkMemory(); err != nil {
		t.Error(err)
	}
}
