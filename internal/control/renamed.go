package control

import "errors"

// On cgroup v1 a cgroup can be renamed: it keeps its ID, its processes, and the weight and limits
// that Daybook wrote. So it is found by its ID, and restored at its new path.

// takeMissing removes the cgroups that are not at their paths any more, and returns those that
// are gone, and those that have other paths now, by these.
func (c *Controller) takeMissing(exists map[string]uint64) (gone []*governed, renamed map[string]*governed) {
	var paths map[uint64]string
	for path, g := range c.cgroups {
		if exists[path] == g.ID {
			continue
		}
		if paths == nil {
			paths, renamed = make(map[uint64]string, len(exists)), map[string]*governed{}
			for path, id := range exists {
				paths[id] = path
			}
		}
		delete(c.cgroups, path)
		if to := paths[g.ID]; to != "" {
			renamed[to] = g
		} else {
			gone = append(gone, g)
		}
	}
	return gone, renamed
}

// followRenamed gives the cgroups of the state that have other paths now these paths. They stay as
// they are if the host's cgroups cannot be listed.
func (s *State) followRenamed(cgroups Cgroups) {
	var paths map[uint64]string
	for n := range s.Cgroups {
		known := &s.Cgroups[n]
		id, err := cgroups.ID(known.Cgroup)
		if err == nil && id == known.ID || err != nil && !errors.Is(err, ErrVanished) {
			continue
		}
		if paths == nil {
			paths = map[uint64]string{}
			list, err := cgroups.List()
			if err != nil {
				return
			}
			for _, found := range list {
				paths[found.ID] = found.Path
			}
		}
		if path := paths[known.ID]; path != "" {
			known.Cgroup = path
		}
	}
}
