package iocost

import (
	"strings"
	"testing"
	"time"
)

func TestLatenciesFollowTheTimeOfALargeWrite(t *testing.T) {
	for rate, want := range map[uint64]time.Duration{
		5e9: 8 * time.Millisecond, 200 << 20: 15 * time.Millisecond, 128 << 20: 24 * time.Millisecond,
		32 << 20: 94 * time.Millisecond, 100e3: 250 * time.Millisecond, 0: 250 * time.Millisecond,
	} {
		if got := latency(OfRate(rate), ForVolumes); got != want {
			t.Errorf("for volumes at %d bytes/s: %v, want %v", rate, got, want)
		}
		if got := latency(OfRate(rate), ForControl); got != 8*time.Millisecond {
			t.Errorf("for control at %d bytes/s: %v, want 8 ms", rate, got)
		}
	}
}

// The slower direction sets the period.
func TestTheLatencyIsThatOfTheSlowerDirection(t *testing.T) {
	fast, slow := OfRate(1<<30), OfRate(128<<20)
	for _, c := range []Coefficients{
		{ReadBytesPerSecond: fast.ReadBytesPerSecond, WriteBytesPerSecond: slow.WriteBytesPerSecond},
		{ReadBytesPerSecond: slow.ReadBytesPerSecond, WriteBytesPerSecond: fast.WriteBytesPerSecond},
	} {
		if got := Propose(c, 1, ForVolumes).QoS; !strings.Contains(got, "rlat=24000 wpct=0 wlat=24000 ") {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestAModelNamesAllCoefficients(t *testing.T) {
	c := OfRate(16 << 20)
	if want := "ctrl=user model=linear rbps=16777216 rseqiops=4096 rrandiops=4096 wbps=16777216 wseqiops=4096 wrandiops=4096"; c.Model() != want {
		t.Errorf("%q, want %q", c.Model(), want)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	c.WriteRandomPerSecond = 0
	if err := c.Check(); err == nil || err.Error() != "wrandiops is 0" {
		t.Errorf("%v; want the coefficient that is 0", err)
	}
	if got := c.Times(0.25).WriteRandomPerSecond; got != 1 {
		t.Errorf("a quarter of nothing is %d; io.cost needs at least 1", got)
	}
}
