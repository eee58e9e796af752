package main

import (
	"testing"

	"github.com/daybook-project/daybook/internal/control"
)

func TestADiskWhoseControlHasEndedHasNoConfiguredShares(t *testing.T) {
	var promises livePromises
	promises.end("sda")
	for _, device := range []string{"sda", "sdb"} {
		promises.set(device, control.Ideals{Configured: true})
	}
	promises.end("sda")
	for device, want := range map[string]bool{"sda": false, "sdb": true} {
		if got, ok := promises.of(device); ok != want || got.Configured != want {
			t.Errorf("%s: %+v, %t; want shares: %t", device, got, ok, want)
		}
	}
}
