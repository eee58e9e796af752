package agent

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// scrapePods returns the namespaces of the series of placed volumes, by the label pod. Two series
// with the same labels are an error of the whole scrape.
func scrapePods(t *testing.T, pods ...Pod) map[string]string {
	t.Helper()
	a := &Agent{names: &Names{}}
	a.report = Report{Rounds: 1, Volumes: []VolumeReport{{Device: "dm-1", Placement: Placement{
		Dev: blockdev.Dev{Major: 253, Minor: 1}, Volume: Volume{Name: "pvc-1"}, Neutral: true, Pods: pods,
	}}}}
	registry := prometheus.NewRegistry()
	registry.MustRegister(a)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, family := range families {
		if family.GetName() != "daybook_agent_volume_placed" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			found[labels["pod"]] = labels["namespace"]
		}
	}
	return found
}

// As while the container runtime does not say which pods share a volume.
func TestPodsWithoutANameHaveSeriesOfTheirOwn(t *testing.T) {
	pods := scrapePods(t, Pod{UID: "a", Unknown: true}, Pod{UID: "b", Unknown: true}, Pod{UID: "c", Namespace: "team", Name: "web-0", Ready: true})
	if len(pods) != 3 || pods["a"] != "" || pods["b"] != "" || pods["web-0"] != "team" {
		t.Errorf("%q", pods)
	}
}

// As when a pod of a StatefulSet was deleted by force and its sandbox still runs.
func TestPodsOfOneNameShareTheirSeries(t *testing.T) {
	pods := scrapePods(t, Pod{UID: "a", Namespace: "team", Name: "web-0", Ready: true}, Pod{UID: "b", Namespace: "team", Name: "web-0", Ready: true})
	if len(pods) != 1 || pods["web-0"] != "team" {
		t.Errorf("%q", pods)
	}
}
