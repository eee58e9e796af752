package law

import "math"

// The constants of trials.
const (
	// wastedPart: if all do less than this part of the most that they did lately, the check of the
	// sibling without a limit may have begun while rates changed, and find nothing for that. Then
	// a trial begins after firstTrial seconds, and each further one after twice the time, up to
	// lastTrial: the others have more for 2*nowSeconds, and the check begins anew. The most that all
	// did fades with mostSeconds.
	wastedPart, firstTrial, lastTrial, mostSeconds = 0.4, 15.0, 300.0, 600.0
)

// trials decides when limits that may waste the disk are tried again.
type trials struct {
	// most is the most that all did lately, in bytes per second.
	most float64
	// wastedSeconds is the time for which all did less than wastedPart of it, less that in which
	// they did more, since the last trial. waitSeconds is that before the next trial, 0 for the
	// first.
	wastedSeconds, waitSeconds float64
}

// add enters what all did in a step, in bytes per second.
func (t *trials) add(rate, seconds float64) {
	t.most = math.Max(rate, t.most*math.Exp(-seconds/mostSeconds))
	if rate < wastedPart*t.most {
		t.wastedSeconds += seconds
	} else if t.wastedSeconds = math.Max(0, t.wastedSeconds-seconds); t.wastedSeconds == 0 {
		t.waitSeconds = 0
	}
}

// due reports whether it is time for a trial.
func (t *trials) due() bool { return t.wastedSeconds >= math.Max(firstTrial, t.waitSeconds) }

// begin enters that a trial begins.
func (t *trials) begin() {
	t.waitSeconds = math.Min(lastTrial, 2*math.Max(firstTrial, t.waitSeconds))
	t.wastedSeconds = 0
}

// endTrial ends the trial of a sibling, if there is one: it is not known to be saturated.
func (l *LimitLaw) endTrial(id string) {
	if m := l.memory[id]; m != nil && m.trial {
		m.forgetSaturation()
	}
}
