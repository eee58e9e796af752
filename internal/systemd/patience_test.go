package systemd

import (
	"testing"
	"time"
)

// A program that asks about many units at each step waits once for a systemd that hangs.
func TestCallsDoNotWaitAgainAndAgainForASilentSystemd(t *testing.T) {
	var p patience
	now := time.Unix(1000, 0)
	if got := p.next(now); got != callPatience {
		t.Fatalf("the first call waits for %v", got)
	}
	now = now.Add(callPatience)
	p.ended(now, true)
	var waited time.Duration
	for begin := now; now.Sub(begin) < time.Minute; now = now.Add(10 * time.Millisecond) {
		wait := p.next(now)
		if wait == 0 {
			continue
		}
		now, waited = now.Add(wait), waited+wait
		p.ended(now, true)
	}
	if waited == 0 || waited > 6*time.Second {
		t.Errorf("in a minute calls waited for %v; want some, and at most a tenth", waited)
	}
	now = now.Add(askPause)
	if got := p.next(now); got != silentPatience {
		t.Errorf("after a pause a call waits for %v", got)
	}
	p.ended(now, false)
	if got := p.next(now); got != callPatience {
		t.Errorf("after an answer a call waits for %v", got)
	}
}

// At the end nothing can be undone later, so calls wait, but not without end.
func TestWhatIsUndoneWaitsForASilentSystemdWithinABound(t *testing.T) {
	var p patience
	now := time.Unix(1000, 0)
	p.ended(now, true)
	p.await(now)
	now = now.Add(10 * time.Second)
	p.await(now) // for a second disk
	if got := p.next(now); got != undoPatience-10*time.Second {
		t.Errorf("a call waits for %v; want the rest of %v", got, undoPatience)
	}
	now = now.Add(undoPatience)
	p.ended(now, true)
	p.await(now)
	if got := p.next(now); got != 0 {
		t.Errorf("after %v in vain a call waits for %v", undoPatience, got)
	}
	p.ended(now, false)
	for disk := range 2 { // nothing is undone on the first
		p.await(now)
		if got := p.next(now); got != undoPatience {
			t.Errorf("after an answer, disk %d, a call waits for %v", disk, got)
		}
		p.endAwait()
	}
}
