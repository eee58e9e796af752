package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/kube"
)

// cluster is what an API server knows; make k8s-test asks a real one.
type cluster struct {
	volumes             map[string]kube.Classes
	storage, attributes map[string]map[string]string
	err                 error
	asked               []string
	askedVolumes        []string
}

func (c *cluster) Namespaces(_ context.Context, label, value string) ([]string, error) {
	if label != NamespaceLabel || value != NamespaceAllowed {
		return nil, errors.New("another label")
	}
	return []string{"web"}, nil
}

func (c *cluster) Volume(_ context.Context, name string) (kube.Classes, bool, error) {
	c.askedVolumes = append(c.askedVolumes, name)
	classes, found := c.volumes[name]
	return classes, found, c.err
}

func (c *cluster) StorageClass(_ context.Context, name string) (map[string]string, error) {
	c.asked = append(c.asked, name)
	return c.storage[name], nil
}

func (c *cluster) AttributesClass(_ context.Context, name string) (map[string]string, error) {
	c.asked = append(c.asked, name)
	return c.attributes[name], nil
}

func TestTheClassesOfVolumesHaveWeights(t *testing.T) {
	c := &cluster{
		volumes: map[string]kube.Classes{"a": {Storage: "fast"}, "b": {Storage: "fast", Attributes: "gold"}, "c": {Storage: "plain", Attributes: "silver"}, "d": {Storage: "wrong"}},
		storage: map[string]map[string]string{"fast": {Annotation: "300"}, "wrong": {Annotation: "1001"}}, attributes: map[string]map[string]string{"gold": {Annotation: "700"}},
	}
	got, err := ask(t.Context(), c, []string{"a", "b", "c", "d", "inline"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint64{"a": 300, "b": 700, "c": 0, "d": 0, "inline": 0} {
		if weight, known := got.Volumes[name]; !known || weight != want {
			t.Errorf("%s: %d, %t; want %d", name, weight, known, want)
		}
	}
	if !got.Namespaces["web"] || len(got.Problems) != 1 || !strings.HasPrefix(got.Problems[0], "StorageClass wrong: ") {
		t.Errorf("%+v", got)
	}
	if slices.Sort(c.asked); len(slices.Compact(slices.Clone(c.asked))) != len(c.asked) {
		t.Errorf("classes were read twice: %q", c.asked)
	}
	c.err = errors.New("down")
	if got, err := ask(t.Context(), c, []string{"a"}); err == nil || got.Volumes != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// Where pods come and go there is a new volume all the time: only that one is asked for.
func TestANewVolumeIsAskedForAlone(t *testing.T) {
	c := &cluster{
		volumes: map[string]kube.Classes{"a": {Storage: "fast"}, "b": {Storage: "wrong"}},
		storage: map[string]map[string]string{"fast": {Annotation: "300"}, "wrong": {Annotation: "x"}},
	}
	a := &Agent{asker: asker{from: c, wake: make(chan struct{}, 1)}}
	check := func(what string, volumes []string, all bool, wake int, wantAsked ...string) (known Choices) {
		t.Helper()
		var mounted []Volume
		for _, name := range volumes {
			mounted = append(mounted, Volume{Name: name}, Volume{Name: name})
		}
		_, _ = a.current(mounted)
		if got := len(a.asker.wake); got != wake {
			t.Errorf("%s: %d wishes to ask at once; want %d", what, got, wake)
		}
		for len(a.asker.wake) > 0 {
			<-a.asker.wake
		}
		c.askedVolumes = nil
		a.askOnce(t.Context(), all)
		if !slices.Equal(c.askedVolumes, wantAsked) {
			t.Errorf("%s: asked for %q; want %q", what, c.askedVolumes, wantAsked)
		}
		known, err := a.current(mounted)
		if err != nil || !known.Namespaces["web"] {
			t.Errorf("%s: %+v, %v", what, known, err)
		}
		return known
	}
	check("first", []string{"a"}, true, 1, "a")
	known := check("a new one", []string{"b", "a"}, false, 1, "b")
	if known.Volumes["a"] != 300 || len(known.Volumes) != 2 || len(known.Problems) != 1 {
		t.Errorf("%+v", known)
	}
	check("nothing new", []string{"a", "b"}, false, 0)
	c.storage["fast"] = map[string]string{Annotation: "400"}
	known = check("all", []string{"a"}, true, 0, "a")
	if known.Volumes["a"] != 400 || len(known.Volumes) != 1 || len(known.Problems) != 0 {
		t.Errorf("%+v", known)
	}
	// One that comes again is new.
	check("again", []string{"a", "b"}, false, 1, "b")
	// Without an answer all stays in force, and is asked for again.
	c.err = errors.New("down")
	_, _ = a.current([]Volume{{Name: "c"}})
	a.askOnce(t.Context(), false)
	if known, err := a.current([]Volume{{Name: "c"}}); err == nil || known.Volumes["a"] != 400 || len(a.asker.wake) != 1 {
		t.Errorf("%+v, %v", known, err)
	}
}

// slow answers one question after the other, each only when its asker has given up.
type slow struct{ cluster }

func (c *slow) Namespaces(ctx context.Context, _, _ string) ([]string, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A slow API server does not hold up the placement of journals.
func TestTheFirstRoundWaitsForABoundedTime(t *testing.T) {
	before := firstAnswer
	defer func() { firstAnswer = before }()
	firstAnswer = time.Millisecond
	a := &Agent{asker: asker{from: &slow{}, wake: make(chan struct{}, 1)}}
	a.askFirst(t.Context())
	if _, err := a.current(nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
