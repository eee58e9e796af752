package control

import "maps"

// once is the text that was logged last about one subject. It is logged again only after it has
// ended, or was another one.
type once string

// isNew records a text ("": it has ended), and reports whether it is to be logged.
func (o *once) isNew(text string) bool {
	same := text == "" || once(text) == *o
	*o = once(text)
	return !same
}

// isNewError is isNew of an error; nil: it has ended.
func (o *once) isNewError(err error) bool {
	if err == nil {
		return o.isNew("")
	}
	return o.isNew(err.Error())
}

// logged is what was logged of a disk, so that it is not logged again at each step.
type logged struct {
	// cgroups are the errors of single ones.
	cgroups map[string]once
	// present, refresh and tunables are the errors of the last look for the disk and for cgroups,
	// and of the last time that tunables were set. notes are those of the plan.
	present, refresh, tunables, notes once
	// unreachable: limits would not hold the shares.
	unreachable bool
}

// isNewOf records an error about a cgroup, and reports whether it is to be logged.
func (l *logged) isNewOf(cgroup string, err error) bool {
	last := l.cgroups[cgroup]
	isNew := last.isNewError(err)
	l.cgroups[cgroup] = last
	return isNew
}

// ended records that a cgroup has no error.
func (l *logged) ended(cgroup string) { delete(l.cgroups, cgroup) }

// forget removes what was logged of cgroups that are gone.
func (l *logged) forget(exists map[string]uint64) {
	maps.DeleteFunc(l.cgroups, func(path string, _ once) bool { _, ok := exists[path]; return !ok })
}
