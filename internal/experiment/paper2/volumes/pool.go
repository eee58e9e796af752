package volumes

import (
	"context"
	"fmt"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/pair"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/volume"
)

// PoolJournal is the I/O of the pool's own journal under one volume that has no
// neighbour.
type PoolJournal struct {
	Provision volume.Provision `json:"provision"`
	pair.Phase
}

// poolJournals measures the pool's own journal under a high-fsync writer, in a thin and
// in a full volume.
func poolJournals(ctx context.Context, l fixture.Lab, o Options, planned plannedPart) (all []PoolJournal, err error) {
	for _, provision := range []volume.Provision{volume.Thin, volume.Full} {
		l.Say(fmt.Sprintf("%s, the pool's own journal, %s volume", planned.Disk, provision))
		on := planned.in(fixture.PlacedVolumes)
		on.Provision = provision
		phases, err := pair.Measure(ctx, l, on, pair.Fio, []fio.Neighbour{pair.Alone}, o.Measurement)
		if err != nil {
			return all, fmt.Errorf("%s volume: %w", provision, err)
		}
		all = append(all, PoolJournal{Provision: provision, Phase: phases[0]})
	}
	return all, nil
}
