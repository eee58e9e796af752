package control

import (
	"maps"

	"github.com/daybook-project/daybook/internal/control/law"
)

// limitLookSeconds is the time between two looks for limits in cgroups that had
// none.
const limitLookSeconds = 60.0

// limitLaws say which limits enforce the shares of one disk.
type limitLaws struct {
	// laws are by the group's parent. held are their limits in this step, by cgroup.
	laws map[string]*law.LimitLaw
	held map[string]Limits
	// sinceLook is the time since the limits of all cgroups were looked at, in seconds.
	sinceLook float64
}

func newLimitLaws() limitLaws { return limitLaws{map[string]*law.LimitLaw{}, map[string]Limits{}, 0} }

// of is the law of a group.
func (l *limitLaws) of(parent string) *law.LimitLaw {
	if l.laws[parent] == nil {
		l.laws[parent] = law.NewLimitLaw()
	}
	return l.laws[parent]
}

// restart forgets all laws. Those of groups with a feedback law begin with what it has learned.
func (l *limitLaws) restart(weights map[string]law.Law) {
	clear(l.laws)
	for parent, of := range weights {
		if f, ok := of.(*law.Feedback); ok {
			l.laws[parent] = f.Limits()
		}
	}
}

// forget removes the laws of groups that are gone.
func (l *limitLaws) forget(gone func(parent string) bool) {
	maps.DeleteFunc(l.laws, func(parent string, _ *law.LimitLaw) bool { return gone(parent) })
}

// lookAtAll adds the time of a step, and reports whether it looks at the limits of all cgroups.
func (l *limitLaws) lookAtAll(seconds float64) bool {
	l.sinceLook += seconds
	if l.sinceLook < limitLookSeconds {
		return false
	}
	l.sinceLook = 0
	return true
}

// lookSoon makes the next step look at the limits of all cgroups.
func (l *limitLaws) lookSoon() { l.sinceLook = limitLookSeconds }
