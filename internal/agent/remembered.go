package agent

import (
	"context"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/daybook-project/daybook/internal/kube"
)

// rememberInterval is how long the classes of a PersistentVolume are remembered at most. The class
// of its attributes can change, but seldom does, and there are many volumes on many nodes.
const rememberInterval = 50 * time.Second

// remembering is a source that reads each PersistentVolume again only from time to time: at different
// times, so that the agents of a cluster do not all ask at once. It remembers no volume that does not
// exist. It is for one goroutine.
type remembering struct {
	source
	now     func() time.Time
	volumes map[string]rememberedVolume
}

type rememberedVolume struct {
	classes kube.Classes
	until   time.Time
}

func remember(from source) *remembering {
	return &remembering{source: from, now: time.Now, volumes: map[string]rememberedVolume{}}
}

// Volume implements source.
func (r *remembering) Volume(ctx context.Context, name string) (kube.Classes, bool, error) {
	now := r.now()
	if known := r.volumes[name]; now.Before(known.until) {
		return known.classes, true, nil
	}
	classes, found, err := r.source.Volume(ctx, name)
	// Those that are no longer asked for are forgotten, too.
	maps.DeleteFunc(r.volumes, func(_ string, known rememberedVolume) bool { return !now.Before(known.until) })
	if err == nil && found {
		r.volumes[name] = rememberedVolume{classes, now.Add(rememberInterval/2 + rand.N(rememberInterval/2))}
	}
	return classes, found, err
}
