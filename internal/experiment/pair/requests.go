package pair

import (
	"cmp"

	"github.com/daybook-project/daybook/internal/disktime"
)

// Requests are those of the disk of a container and a class.
type Requests struct {
	// Who is "A", "B", "root" or "none".
	Who   string         `json:"who"`
	Class disktime.Class `json:"class"`
	disktime.Sums
}

// Moves are those of the disk's head to requests of a container and a class, after
// one of another.
type Moves struct {
	Who         string         `json:"who"`
	Class       disktime.Class `json:"class"`
	BeforeWho   string         `json:"before_who"`
	BeforeClass disktime.Class `json:"before_class"`
	disktime.Moves
}

// diskTimes are those of the requests, and the moves between them.
type diskTimes struct {
	sums  map[Requests]disktime.Sums
	moves map[Moves]disktime.Moves
}

// diskTimes reads the times of the requests since the probe was opened; nothing without
// one.
func (s *pair) diskTimes(p *disktime.Probe) (diskTimes, error) {
	times := diskTimes{map[Requests]disktime.Sums{}, map[Moves]disktime.Moves{}}
	if p == nil {
		return times, nil
	}
	sums, err := p.Read(s.Disk.Device.Dev)
	if err != nil {
		return times, err
	}
	moves, err := p.Moves(s.Disk.Device.Dev)
	if err != nil {
		return times, err
	}
	names := map[uint64]string{0: "none"}
	for _, t := range s.containers() {
		for _, path := range []string{t.Parent, t.Load, t.Journal()} {
			if c, err := s.Lab.Tree.Lookup(path); err == nil {
				names[c.ID] = t.Name
			}
		}
	}
	name := func(cgroup uint64) string { return cmp.Or(names[cgroup], "root") }
	for key, sum := range sums {
		of := Requests{Who: name(key.Cgroup), Class: key.Class}
		times.sums[of] = times.sums[of].Add(sum)
	}
	for key, sum := range moves {
		of := Moves{Who: name(key.Of.Cgroup), Class: key.Of.Class, BeforeWho: name(key.Before.Cgroup), BeforeClass: key.Before.Class}
		times.moves[of] = times.moves[of].Add(sum)
	}
	return times, nil
}

// since returns what was added after an earlier reading.
func (t diskTimes) since(before diskTimes) (requests []Requests, moves []Moves) {
	for of, sum := range t.sums {
		of.Sums = sum.Less(before.sums[of])
		requests = append(requests, of)
	}
	for of, sum := range t.moves {
		of.Moves = sum.Less(before.moves[of])
		moves = append(moves, of)
	}
	return requests, moves
}
