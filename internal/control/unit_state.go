package control

import "time"

const (
	// unitRetry is the pause after a failed call of the service manager.
	unitRetry = 30 * time.Second
	// youngUnitRetry is the pause after systemd knew no unit of a cgroup that was just made. It
	// is shorter than a step.
	youngUnitRetry = 100 * time.Millisecond
)

// unitState is what is known of a cgroup's unit beside its name and its original weight, which
// are in [CgroupState].
type unitState struct {
	answer unitAnswer
	// pausedUntil is when the service manager is called again: until then the cgroup's files are
	// written, and nothing is asked.
	pausedUntil time.Time
	// warned: it was logged that the service manager did not set the unit's weight.
	warned bool
	// weights are those that the unit was given.
	weights unitWeights
}

// unitAnswer is what the service manager said when it was asked whose cgroup it is.
type unitAnswer int

const (
	// unitCertain: nothing is to be asked. It named the unit, there is none, or there is no
	// service manager to ask.
	unitCertain unitAnswer = iota
	// unitUnanswered: it did not say.
	unitUnanswered
	// unitNotYet: it knew none, and may know one later.
	unitNotYet
)

// paused reports whether the service manager is not called now.
func (u *unitState) paused(now time.Time) bool { return now.Before(u.pausedUntil) }

// wanted reports whether the service manager is to be asked whose cgroup it is.
func (u *unitState) wanted(now time.Time) bool { return u.answer != unitCertain && !u.paused(now) }

// pause stops the calls of the service manager for unitRetry; resume allows them again.
func (u *unitState) pause(now time.Time) { u.pausedUntil = now.Add(unitRetry) }
func (u *unitState) resume()             { u.pausedUntil = time.Time{} }

// unanswered records that the service manager failed when it was asked, and reports whether that
// is new. One that knew no unit before still knows none.
func (u *unitState) unanswered(now time.Time) (isNew bool) {
	u.pause(now)
	if isNew = u.answer == unitCertain; isNew {
		u.answer = unitUnanswered
	}
	return isNew
}

// certain records an answer that does not change.
func (u *unitState) certain() { u.answer = unitCertain }

// notYet records that the service manager knew no unit. That of a young cgroup may be starting.
func (u *unitState) notYet(now time.Time, young bool) {
	u.answer = unitNotYet
	u.pause(now)
	if young {
		u.pausedUntil = now.Add(youngUnitRetry)
	}
}

// unsaved records that the answer could not be saved: it is asked for again.
func (u *unitState) unsaved() { u.answer = unitUnanswered }

// refused records that the service manager did not set the weight, and reports whether that is
// new since it last did.
func (u *unitState) refused(now time.Time) (isNew bool) {
	isNew = !u.warned
	u.warned = true
	u.pause(now)
	return isNew
}

// followed records that the service manager set the weight, and that the files follow.
func (u *unitState) followed() {
	u.warned = false
	u.resume()
}

// unitWeights are the weights that Daybook gave a unit, as in the cgroup's file; 0
// means none. They differ from the weight in the file if control writes the file
// itself.
type unitWeights struct {
	// Unit is the last one that the service manager accepted; IntendedUnit is the
	// last one in a request to it.
	Unit, IntendedUnit uint64
}

// gave reports whether Daybook gave the unit a weight that becomes this one in the
// cgroup's file.
func (u unitWeights) gave(weight uint64) bool {
	return weight != 0 && (weight == u.Unit || weight == u.IntendedUnit)
}
