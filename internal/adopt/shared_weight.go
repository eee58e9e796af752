package adopt

import (
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/volume/placement"
)

// SharedWeight is the largest weight of cgroups that share a file system. It stays as long as they
// are the same, because control may correct their weights all the time. The zero value is not known
// yet.
type SharedWeight struct {
	weight  uint64
	certain bool
	looked  time.Time
}

// uncertainInterval is the time between two looks for a weight that may be a correction.
const uncertainInterval = 5 * time.Second

// Get returns the largest weight of cgroups on the disk of a file system, apart from control's
// corrections; 0 if it has no weights. If the corrections cannot be found out, that is logged, and
// the weight in force stays until they can.
func (s *SharedWeight) Get(dev blockdev.Dev, cgroups []string, log *slog.Logger) (uint64, error) {
	return s.get(dev, cgroups, control.HostOriginals(), log)
}

func (s *SharedWeight) get(dev blockdev.Dev, cgroups []string, originals control.Originals, log *slog.Logger) (uint64, error) {
	first := s.looked.IsZero()
	if s.certain || !first && time.Since(s.looked) < uncertainInterval {
		return s.weight, nil
	}
	weight, err := largestWeight(dev, cgroups, originals)
	uncertain := errors.Is(err, placement.ErrUncertain)
	if err != nil && !uncertain {
		return 0, err
	}
	if first || !uncertain {
		s.weight = weight
	}
	if first && uncertain {
		log.Warn("the weight for a shared file system may be a correction of control", "cgroups", strings.Join(cgroups, ", "), "weight", weight, "why", err)
	}
	s.certain, s.looked = !uncertain, time.Now()
	return s.weight, nil
}

// largestWeight is that apart from corrections. With placement.ErrUncertain, some of the weights
// are those in force.
func largestWeight(dev blockdev.Dev, cgroups []string, originals control.Originals) (uint64, error) {
	tree, err := cgroup.Find()
	if err != nil {
		return 0, err
	}
	disk, err := blockdev.Host.LookupDev(dev)
	if err == nil {
		disk, err = disk.Bottom()
	}
	if err != nil {
		return 0, nil // on several disks, which have no common weight
	}
	offered, err := disk.Scheduler()
	if err != nil {
		return 0, err
	}
	weights, err := tree.Weights(disk.Dev, offered.Current)
	if errors.Is(err, cgroup.ErrNoWeights) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	largest, uncertain := uint64(0), error(nil)
	for _, at := range cgroups {
		setting, err := placement.Uncorrected(originals.Weight).Weight(tree, weights, disk, at)
		switch {
		case errors.Is(err, placement.ErrUncertain):
			uncertain = err
		case errors.Is(err, cgroup.ErrVanished):
			continue
		case err != nil:
			return 0, err
		}
		largest = max(largest, setting.Effective())
	}
	return largest, uncertain
}
