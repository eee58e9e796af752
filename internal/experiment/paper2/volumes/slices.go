package volumes

import (
	"context"
	"fmt"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/pair"
	"github.com/daybook-project/daybook/internal/fio"
)

// SliceTrial is a phase on partitions with one configuration of the scheduler.
type SliceTrial struct {
	// Slices is the name of the configuration, Settings its text for reports.
	Slices   string `json:"slices"`
	Settings string `json:"settings"`
	Load     string `json:"load"`
	pair.Phase
}

// sliceLoads are the loads and neighbours that are measured with each configuration.
var sliceLoads = []struct {
	load       string
	neighbours []fio.Neighbour
}{
	{pair.Fio, []fio.Neighbour{pair.Alone, fio.HighFsync}},
	{pair.MariaDB, []fio.Neighbour{fio.LowFsync, fio.HighFsync}},
}

// sliceTrials measures gain and cost of the configurations, with a partition for each
// container.
func sliceTrials(ctx context.Context, l fixture.Lab, o Options, what plannedPart) (trials []SliceTrial, err error) {
	for _, how := range []pair.Slicing{pair.FairSlices(), pair.ShortSlices(), pair.FewRequests(), pair.CrowdedBefore()} {
		for _, tried := range sliceLoads {
			on := what.in(fixture.OwnPartitions)
			on.Slicing = how
			phases, err := pair.Measure(ctx, l, on, tried.load, tried.neighbours, o.Measurement)
			if err != nil {
				return trials, fmt.Errorf("%s, %s: %w", how.Name, tried.load, err)
			}
			for _, phase := range phases {
				trials = append(trials, SliceTrial{Slices: how.Name, Settings: how.String(), Load: tried.load, Phase: phase})
			}
		}
	}
	return trials, nil
}
