package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/kube"
)

// cluster is what an API server knows; make k8s-test asks a real one.
type cluster struct {
	volumes             map[string]kube.Classes
	storage, attributes map[string]map[string]string
	err                 error
	asked               []string
}

func (c *cluster) Namespaces(_ context.Context, label, value string) ([]string, error) {
	if label != NamespaceLabel || value != NamespaceAllowed {
		return nil, errors.New("another label")
	}
	return []string{"web"}, nil
}

func (c *cluster) Volume(_ context.Context, name string) (kube.Classes, bool, error) {
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
