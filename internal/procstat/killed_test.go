package procstat

import (
	"fmt"
	"os"
	"testing"
)

func TestAKilledProcessHasSIGKILLAmongItsPendingSignals(t *testing.T) {
	const form = "Name:\tx\nState:\tD (disk sleep)\nSigQ:\t1/94\nSigPnd:\t%s\nShdPnd:\t%s\nSigBlk:\t0000000000000100\n"
	for _, c := range []struct {
		thread, process string
		want            bool
	}{
		{"0000000000000000", "0000000000000000", false},
		{"0000000000000100", "0000000000000000", true},
		{"0000000000000000", "0000000000000100", true},
		{"0000000000004000", "0000000000000200", false}, // SIGTERM, SIGUSR1
	} {
		if got, err := killPending(fmt.Sprintf(form, c.thread, c.process)); err != nil || got != c.want {
			t.Errorf("%+v: %t, %v", c, got, err)
		}
	}
	for _, text := range []string{"", "Name:\tx\nSigPnd:\t0\n", fmt.Sprintf(form, "x", "0")} {
		if _, err := killPending(text); err == nil {
			t.Errorf("%q has no error", text)
		}
	}
	if killed, err := Killed(os.Getpid()); killed || err != nil {
		t.Errorf("this process: %t, %v", killed, err)
	}
}
