package placement

import (
	"errors"
	"os"
	"os/exec"
	"testing"
)

// The name of a thread that has ended is "", as that of any other that has.
func TestAThreadThatEndedWhenItWasFoundIsLookedForAgain(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	var last Last
	looked := 0
	next := ended.Process.Pid
	find := func() (int, error) { looked++; return next, nil }
	for n := range 3 {
		if n == 1 {
			next = os.Getpid()
		}
		if pid, err := last.PID(find); err != nil || pid != next {
			t.Errorf("%d, %v; want %d", pid, err, next)
		}
	}
	if looked != 2 {
		t.Errorf("it was looked for %d times; want 2: one ended, one lives", looked)
	}
	none := errors.New("none")
	if _, err := (&Last{}).PID(func() (int, error) { return 0, none }); !errors.Is(err, none) {
		t.Error(err)
	}
}
