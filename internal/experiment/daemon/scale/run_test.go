package scale

import (
	"strings"
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

func TestTheBoundsAreForActiveCgroups(t *testing.T) {
	good := Result{Cgroups: Cgroups, Active: Cgroups, CPUSeconds: 0.01, PeakBytes: 30 << 20}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*Result){
		"3 of 1000 cgroups did I/O": func(s *Result) { s.Active = 3 },
		"takes 21.0 ms":             func(s *Result) { s.CPUSeconds = 0.021 },
		"65.0 MiB resident":         func(s *Result) { s.PeakBytes = 65 << 20 },
	} {
		bad := good
		spoil(&bad)
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
