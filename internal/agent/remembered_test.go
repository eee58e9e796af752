package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/kube"
)

// The agents of many nodes ask one API server. A changed class of a volume is seen within a minute,
// and a changed annotation of a class at once.
func TestAKnownVolumeIsReadAgainWithinAMinuteAndNotMoreOftenThanTwice(t *testing.T) {
	c := &cluster{
		volumes:    map[string]kube.Classes{},
		storage:    map[string]map[string]string{"fast": {Annotation: "300"}},
		attributes: map[string]map[string]string{"gold": {Annotation: "700"}},
	}
	var names []string
	for n := range 20 {
		names = append(names, fmt.Sprintf("pv-%02d", n))
		c.volumes[names[n]] = kube.Classes{Storage: "fast"}
	}
	now := time.Unix(1e9, 0)
	from := remember(c)
	from.now = func() time.Time { return now }
	a := &Agent{asker: asker{from: from, wake: make(chan struct{}, 1), volumes: append(slices.Clone(names), "inline")}}
	weight := func(name string) uint64 { return a.choices.Volumes[name] }
	a.askOnce(t.Context(), true)
	c.askedVolumes = nil
	c.volumes["pv-07"] = kube.Classes{Storage: "fast", Attributes: "gold"}
	c.storage["fast"] = map[string]string{Annotation: "400"}
	for asks := 1; asks <= 6; asks++ {
		now = now.Add(askInterval)
		a.askOnce(t.Context(), true)
		if a.choicesErr != nil || weight("pv-03") != 400 {
			t.Fatalf("ask %d: the annotation of the class: %d, %v", asks, weight("pv-03"), a.choicesErr)
		}
	}
	if weight("pv-07") != 700 {
		t.Errorf("the class of a volume has changed: its weight is %d", weight("pv-07"))
	}
	times := map[string]int{}
	for _, name := range c.askedVolumes {
		times[name]++
	}
	for _, name := range names {
		if times[name] < 1 || times[name] > 2 {
			t.Errorf("%s was read %d times in a minute; want 1 or 2", name, times[name])
		}
	}
	// One that does not exist yet is not remembered.
	if times["inline"] != 6 {
		t.Errorf("a missing volume was read %d times", times["inline"])
	}
	// Volumes that have gone are forgotten.
	a.asker.volumes = names[:1]
	now = now.Add(2 * rememberInterval)
	a.askOnce(t.Context(), true)
	if len(from.volumes) != 1 {
		t.Errorf("%d volumes are remembered; want 1", len(from.volumes))
	}
}
