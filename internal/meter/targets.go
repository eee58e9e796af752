package meter

import (
	"path"

	"github.com/daybook-project/daybook/internal/account"
)

// targetShares returns the ideal share of the disk for each unit, 0..1, as a
// proportional scheduler divides it: from the root down, the share of every
// cgroup is divided among its children that hold a unit, by their weights. A
// unit that also holds others keeps its own weight against its children. weight
// must be positive; it is called for units and for all cgroups above them.
func targetShares(units []string, weight func(path string) float64) map[string]float64 {
	children := make(map[string]map[string]bool)
	member := make(map[string]bool, len(units))
	for _, unit := range units {
		if unit == account.RootCgroup {
			continue
		}
		member[unit] = true
		for below := unit; below != account.RootCgroup; below = path.Dir(below) {
			above := path.Dir(below)
			if children[above] == nil {
				children[above] = make(map[string]bool)
			}
			children[above][below] = true
		}
	}
	shares := make(map[string]float64, len(units))
	var divide func(at string, share float64)
	divide = func(at string, share float64) {
		var sum float64
		if member[at] {
			sum = weight(at)
		}
		for child := range children[at] {
			sum += weight(child)
		}
		if sum <= 0 {
			return
		}
		if member[at] {
			shares[at] = share * weight(at) / sum
		}
		for child := range children[at] {
			divide(child, share*weight(child)/sum)
		}
	}
	divide(account.RootCgroup, 1)
	return shares
}
