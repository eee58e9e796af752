package shares

import (
	"reflect"
	"testing"
)

func TestPlanHasEveryValueTwiceAndChangesFewConditions(t *testing.T) {
	count := make(map[any]int)
	names := make(map[string]bool)
	for _, s := range Full.plan() {
		if names[s.Name] {
			t.Errorf("%s is there twice", s.Name)
		}
		names[s.Name] = true
		c, b, changed := reflect.ValueOf(s.Conditions), reflect.ValueOf(base), 0
		for n := range c.NumField() {
			value := [2]any{c.Type().Field(n).Name, c.Field(n).Interface()}
			count[value]++
			if !c.Field(n).Equal(b.Field(n)) {
				changed++
			}
		}
		if changed > 2 {
			t.Errorf("%s differs in %d conditions from the base; want at most 2", s.Name, changed)
		}
		if len(s.Actors) != s.Containers {
			t.Errorf("%s has %d containers", s.Name, len(s.Actors))
		}
		storms := 0
		for _, actor := range s.Actors {
			if actor.ChangesPerSecond > 0 {
				storms++
			}
			if actor.Stream.Depth != s.Depth || (actor.Stream.FsyncEvery > 0) != (s.Load == Syncers) {
				t.Errorf("%s: %s has %+v", s.Name, actor.Name, actor.Stream)
			}
		}
		if (storms == 1) != s.Storm || storms > 1 {
			t.Errorf("%s has %d storms", s.Name, storms)
		}
	}
	for name, values := range map[string][]any{
		"Depth": {1, 8, 32}, "Load": {Readers, Writers, Syncers, Mixed}, "Containers": {2, 3, 4}, "Storm": {true, false},
		"Divider": {BFQDefault, BFQRecommended, MQDeadline, None},
	} {
		for _, value := range values {
			if n := count[[2]any{name, value}]; n < 2 {
				t.Errorf("%s %v is in %d scenarios; want 2 or more", name, value, n)
			}
		}
	}
}
