package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

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

// An alert on old rounds has nothing to compare if the metric is absent.
func TestUntilTheFirstRoundItsTimeIsThatOfTheStart(t *testing.T) {
	a := &Agent{names: &Names{}, made: time.Unix(1_800_000_000, 0)}
	for _, c := range []struct {
		report Report
		want   float64
	}{{Report{}, 1_800_000_000}, {Report{Rounds: 1, Time: time.Unix(1_800_000_007, 0)}, 1_800_000_007}} {
		a.report = c.report
		want := fmt.Sprintf(`
			# HELP daybook_agent_last_round_timestamp_seconds When the last round ended, in Unix time; until the first one, when the agent started.
			# TYPE daybook_agent_last_round_timestamp_seconds gauge
			daybook_agent_last_round_timestamp_seconds %f
		`, c.want)
		if err := testutil.CollectAndCompare(a, strings.NewReader(want), "daybook_agent_last_round_timestamp_seconds"); err != nil {
			t.Error(err)
		}
	}
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
