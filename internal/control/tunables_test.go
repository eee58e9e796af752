package control

import (
	"fmt"
	"testing"
)

func TestWhatWeakensWeightsIsNamedWithItsCommand(t *testing.T) {
	for _, test := range []struct {
		tunables map[string]string
		want     string
	}{
		{map[string]string{"low_latency": "0", "strict_guarantees": "1", "timeout_sync": "40", "nr_requests": "256"}, ""},
		{map[string]string{"nr_requests": "1024", "timeout_sync": "4"}, ""},
		{map[string]string{"nr_requests": "64"}, "echo 256 > /sys/block/sda/queue/nr_requests\n"},
		{map[string]string{"low_latency": "1", "timeout_sync": "124"},
			"echo 0 > /sys/block/sda/queue/iosched/low_latency\necho 40 > /sys/block/sda/queue/iosched/timeout_sync\n"},
	} {
		f := newFakeHost()
		f.tunables = test.tunables
		got := ""
		for _, weak := range WeakTunables(f.host().Tunables) {
			got += fmt.Sprintln(weak.Command("sda"))
			if weak.Why == "" {
				t.Errorf("%s: no reason is given", weak.Name)
			}
		}
		if got != test.want {
			t.Errorf("%v: got %q, want %q", test.tunables, got, test.want)
		}
	}
}

// A shell would take the "!" for its history.
func TestCommandsQuoteTheNameOfTheDisk(t *testing.T) {
	if got := (WeakTunable{Name: lowLatency}).Command("cciss!c0d0"); got != "echo 0 > '/sys/block/cciss!c0d0/queue/iosched/low_latency'" {
		t.Error(got)
	}
}
