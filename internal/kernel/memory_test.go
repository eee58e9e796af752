package kernel

import "testing"

func TestAvailableMemoryIsRead(t *testing.T) {
	got, known := parseAvailable("MemTotal:       24105000 kB\nMemAvailable:    1000 kB\n")
	if !known || got != 1000<<10 {
		t.Errorf("%d, %t", got, known)
	}
	if _, known := parseAvailable("MemTotal: 1 kB\n"); known {
		t.Error("known from nothing")
	}
}
