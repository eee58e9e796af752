package report

import (
	"strings"
	"testing"
)

func TestFiguresOfAnotherHostAreRefused(t *testing.T) {
	now := ThisHost()
	earlier := now
	earlier.Measured = "2026-01-02"
	if err := SameHost(earlier, now); err != nil {
		t.Errorf("another day: %v", err)
	}
	for name, change := range map[string]func(*Host){
		"another kernel":       func(h *Host) { h.Kernel = "1.2.3-other" },
		"another architecture": func(h *Host) { h.Architecture = "other" },
		"more CPUs":            func(h *Host) { h.CPUs++ },
		"an unknown host":      func(h *Host) { *h = Host{} },
	} {
		before := earlier
		change(&before)
		if err := SameHost(before, now); err == nil || !strings.Contains(err.Error(), "another host (kernel "+before.Kernel+",") || !strings.Contains(err.Error(), "measure all parts") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
