package meter

// maxCarriedBytes limits what one unit has to return later on one disk. No commit of jbd2 is larger
// than a quarter of its journal.
const maxCarriedBytes = 1 << 30

// carried is what units still have to return, by disk and unit. The blocks of a commit are charged
// to the cgroup of the jbd2 thread when they are written. If the commit ends in a later interval,
// that unit has to return more than the kernel charged to it in that interval. It returns the rest
// of what the kernel charges to it next, so that the sum over the intervals is that of the disk.
type carried map[uint32]map[string]uint64

// enter adds to what is to be returned on a page what was carried for the units that the kernel
// charged in this interval.
func (c carried) enter(pages map[uint32]*page, known func(path string) bool) {
	for disk, sums := range c {
		p := pages[disk]
		if p == nil {
			delete(c, disk) // the disk is gone
			continue
		}
		for path, bytes := range sums {
			if known != nil && !known(path) {
				delete(sums, path) // nothing is charged to it any more
				continue
			}
			if unit := p.units[path]; unit != nil && unit.ChargedWriteBytes > 0 {
				unit.ReturnedBytes += bytes
				delete(sums, path)
			}
		}
	}
}

// limit reduces what the units of a page return to what the kernel charged to them, and carries the
// rest.
func (c carried) limit(disk uint32, p *page) {
	for path, unit := range p.units {
		if unit.ReturnedBytes <= unit.ChargedWriteBytes {
			continue
		}
		rest := unit.ReturnedBytes - unit.ChargedWriteBytes
		unit.ReturnedBytes = unit.ChargedWriteBytes
		if c[disk] == nil {
			c[disk] = make(map[string]uint64)
		}
		c[disk][path] = min(c[disk][path]+rest, maxCarriedBytes)
	}
}
