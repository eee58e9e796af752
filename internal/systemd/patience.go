package systemd

import (
	"errors"
	"fmt"
	"time"
)

// ErrSilent means that systemd does not answer. It answers no call while it reloads its
// units, and none for longer if it hangs.
var ErrSilent = errors.New("systemd does not answer")

// ErrBusy is ErrSilent in the first seconds: systemd may be reloading its units, and answer
// soon.
var ErrBusy = fmt.Errorf("%w yet", ErrSilent)

const (
	// callPatience bounds one call while systemd is not known to be silent, unless the
	// Manager has another bound. A systemd that was silent for longer is not just busy.
	callPatience = 5 * time.Second
	// silentPatience bounds a call to a systemd that did not answer the last one. Between two
	// of them is askPause, in which calls fail at once: a program with many units would
	// otherwise wait for each.
	silentPatience, askPause = 200 * time.Millisecond, 2 * time.Second
	// undoPatience bounds all calls together that a program makes before it ends.
	undoPatience = 30 * time.Second
)

// patience says how long calls wait for systemd.
type patience struct {
	// silent is when the last call ended without an answer; zero: it had one. since is when
	// the first of those calls began.
	silent, since time.Time
	// until is the end of the time for which calls wait in any case. spent: they did, and
	// systemd has not answered since.
	until time.Time
	spent bool
}

// next is how long the next call may wait; 0: it is not to be made. first is for a call to a
// systemd that answered the last one.
func (p *patience) next(now time.Time, first time.Duration) time.Duration {
	switch {
	case now.Before(p.until):
		return p.until.Sub(now)
	case p.silent.IsZero():
		return first
	case now.Sub(p.silent) < askPause:
		return 0
	}
	return silentPatience
}

// ended takes in the end of a call.
func (p *patience) ended(began, now time.Time, silent bool) {
	if !silent {
		p.silent, p.since, p.spent = time.Time{}, time.Time{}, false
		return
	}
	if p.silent.IsZero() {
		p.since = began
	}
	p.silent = now
}

// silence is the error of a call that had no answer, or was not made.
func (p *patience) silence(now time.Time) error {
	if now.Sub(p.since) < callPatience {
		return ErrBusy
	}
	return ErrSilent
}

// await makes calls wait for undoPatience from now on. While systemd is silent, it does so
// once.
func (p *patience) await(now time.Time) {
	if !p.spent {
		p.until, p.spent = now.Add(undoPatience), true
	}
}

// endAwait ends that. If systemd left no call without an answer, the next time is a new one.
func (p *patience) endAwait() {
	if p.until = (time.Time{}); p.silent.IsZero() {
		p.spent = false
	}
}
