package agent

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// Two series with the same labels are an error of the whole scrape, as while the container runtime
// does not say which pods share a volume.
func TestPodsWithoutANameHaveSeriesOfTheirOwn(t *testing.T) {
	a := &Agent{names: &Names{}}
	a.report = Report{Rounds: 1, Volumes: []VolumeReport{{Device: "dm-1", Placement: Placement{
		Dev: blockdev.Dev{Major: 253, Minor: 1}, Volume: Volume{Name: "pvc-1"}, Neutral: true,
		Pods: []Pod{{UID: "a", Unknown: true}, {UID: "b", Unknown: true}, {UID: "c", Namespace: "team", Name: "web-0", Ready: true}},
	}}}}
	registry := prometheus.NewRegistry()
	registry.MustRegister(a)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]string{}
	for _, family := range families {
		if family.GetName() != "daybook_agent_volume_placed" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			pods[labels["pod"]] = labels["namespace"]
		}
	}
	if len(pods) != 3 || pods["a"] != "" || pods["b"] != "" || pods["web-0"] != "team" {
		t.Errorf("%q", pods)
	}
}
