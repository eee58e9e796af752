package systemd

import (
	"errors"
	"testing"
	"time"
)

// A program that asks about many units at each step waits once for a systemd that hangs.
func TestCallsDoNotWaitAgainAndAgainForASilentSystemd(t *testing.T) {
	var p patience
	now := time.Unix(1000, 0)
	if got := p.next(now, callPatience); got != callPatience {
		t.Fatalf("the first call waits for %v", got)
	}
	p.ended(now, now.Add(callPatience), true)
	now = now.Add(callPatience)
	var waited time.Duration
	for begin := now; now.Sub(begin) < time.Minute; now = now.Add(10 * time.Millisecond) {
		wait := p.next(now, callPatience)
		if wait == 0 {
			continue
		}
		p.ended(now, now.Add(wait), true)
		now, waited = now.Add(wait), waited+wait
	}
	if waited == 0 || waited > 6*time.Second {
		t.Errorf("in a minute calls waited for %v; want some, and at most a tenth", waited)
	}
	now = now.Add(askPause)
	if got := p.next(now, callPatience); got != silentPatience {
		t.Errorf("after a pause a call waits for %v", got)
	}
	p.ended(now, now, false)
	if got := p.next(now, callPatience); got != callPatience {
		t.Errorf("after an answer a call waits for %v", got)
	}
}

// At the end nothing can be undone later, so calls wait, but not without end.
func TestWhatIsUndoneWaitsForASilentSystemdWithinABound(t *testing.T) {
	var p patience
	now := time.Unix(1000, 0)
	p.ended(now, now, true)
	p.await(now)
	now = now.Add(10 * time.Second)
	p.await(now) // for a second disk
	if got := p.next(now, callPatience); got != undoPatience-10*time.Second {
		t.Errorf("a call waits for %v; want the rest of %v", got, undoPatience)
	}
	now = now.Add(undoPatience)
	p.ended(now, now, true)
	p.await(now)
	if got := p.next(now, callPatience); got != 0 {
		t.Errorf("after %v in vain a call waits for %v", undoPatience, got)
	}
	p.ended(now, now, false)
	for disk := range 2 { // nothing is undone on the first
		p.await(now)
		if got := p.next(now, callPatience); got != undoPatience {
			t.Errorf("after an answer, disk %d, a call waits for %v", disk, got)
		}
		p.endAwait()
	}
}

// While systemd reloads its units it answers nothing for a second or more. A program that
// does not wait for that learns that it may answer soon, and for how long at most.
func TestASystemdThatIsSilentForASecondMayBeBusy(t *testing.T) {
	const first = 500 * time.Millisecond
	var p patience
	now := time.Unix(1000, 0)
	if got := p.next(now, first); got != first {
		t.Fatalf("the first call waits for %v, want %v", got, first)
	}
	begin := now
	p.ended(now, now.Add(first), true)
	var waited time.Duration
	for now = now.Add(first); now.Sub(begin) < 2*callPatience; now = now.Add(10 * time.Millisecond) {
		if wait := p.next(now, first); wait > 0 {
			p.ended(now, now.Add(wait), true)
			now, waited = now.Add(wait), waited+wait
		}
		silent, busy := p.silence(now), now.Sub(begin) < callPatience
		if errors.Is(silent, ErrBusy) != busy || !errors.Is(silent, ErrSilent) {
			t.Fatalf("after %v: %v", now.Sub(begin), silent)
		}
	}
	if waited == 0 || waited > time.Second {
		t.Errorf("calls waited for %v after the first", waited)
	}
	p.ended(now, now, false)
	if got := p.next(now, first); got != first {
		t.Errorf("after an answer a call waits for %v", got)
	}
	p.ended(now, now.Add(first), true)
	if err := p.silence(now.Add(first)); !errors.Is(err, ErrBusy) {
		t.Errorf("silent for the second time: %v", err)
	}
}
