package main

import (
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/daybook-project/daybook/internal/agent"
	"github.com/daybook-project/daybook/internal/serve"
)

// The chart itself is tested by "make chart-test"; this is what a change of the program can
// break.
func TestTheManifestsStartTheAgentWithAConfigurationThatItTakes(t *testing.T) {
	file, err := os.Open("../../deploy/kubernetes/daybook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoder := yaml.NewDecoder(file)
	configs, commands := 0, 0
	for {
		var object struct {
			Kind string
			Data map[string]string
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Args []string
							Env  []struct{ Name, Value string }
						}
					}
				}
			}
		}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch object.Kind {
		case "ConfigMap":
			configs++
			if _, err := agent.ReadConfig(strings.NewReader(object.Data["agent.yaml"]), "agent.yaml"); err != nil {
				t.Error(err)
			}
		case "DaemonSet":
			for _, c := range object.Spec.Template.Spec.Containers {
				commands++
				if err := parses(c.Args); err != nil {
					t.Errorf("%q: %v", c.Args, err)
				}
				// As in the units: a node may limit the threads of a pod.
				if len(c.Env) != 1 || c.Env[0].Name != "GOMAXPROCS" || c.Env[0].Value != "4" {
					t.Errorf("its threads are as many as the node's processors: %+v", c.Env)
				}
			}
		}
	}
	if configs != 1 || commands != 1 {
		t.Errorf("%d configurations, %d commands", configs, commands)
	}
}

// metricNames returns the names of all metrics of daybook.
func metricNames() map[string]bool {
	names := map[string]bool{"daybook_build_info": true}
	for _, collector := range []prometheus.Collector{serve.NewMetrics(1), serve.NewPools(func() ([]string, error) { return nil, nil }), &agent.Agent{}} {
		descs := make(chan *prometheus.Desc, 1000)
		collector.Describe(descs)
		close(descs)
		for d := range descs {
			names[metricName.FindString(d.String())] = true
		}
	}
	return names
}

var metricName = regexp.MustCompile(`\bdaybook_[a-z0-9_]*[a-z0-9]\b`)

// A histogram and a summary have series with these endings.
var seriesEnding = regexp.MustCompile(`_(bucket|sum|count)$`)

func TestAlertsOfTheChartAreOnMetricsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../deploy/helm/daybook/templates/prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names := metricNames()
	used := metricName.FindAllString(string(text), -1)
	if len(used) < 6 {
		t.Errorf("only %q", used)
	}
	for _, name := range used {
		if !names[name] {
			t.Errorf("an alert is on %s, which is no metric", name)
		}
	}
}

// The tables of pools and volumes name the beginning of the metrics once, in their heads.
func TestThePageOfMetricsListsEachMetric(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	listed, beginning := map[string]bool{}, ""
	head, cell := regexp.MustCompile("`(daybook_[a-z]+_)\\.\\.\\."), regexp.MustCompile("`([a-z0-9_]+)`")
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "|") {
			beginning = ""
			continue
		}
		if m := head.FindStringSubmatch(line); m != nil {
			beginning = m[1]
			continue
		}
		for _, m := range cell.FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			listed[beginning+m[1]] = true
		}
	}
	names := metricNames()
	for name := range names {
		if !listed[name] {
			t.Errorf("docs/metrics.md does not list %s", name)
		}
	}
	for name := range listed {
		if strings.HasPrefix(name, "daybook_") && !names[name] {
			t.Errorf("docs/metrics.md lists %s, which is no metric", name)
		}
	}
}

func TestQueriesInTheDocumentationAreOnMetricsThatExist(t *testing.T) {
	names := metricNames()
	for page, least := range map[string]int{"monitoring.md": 8, "kubernetes.md": 6} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		used := metricName.FindAllString(string(text), -1)
		if len(used) < least {
			t.Errorf("%s: only %q", page, used)
		}
		for _, name := range used {
			if !names[name] && !names[seriesEnding.ReplaceAllString(name, "")] {
				t.Errorf("%s is on %s, which is no metric", page, name)
			}
		}
	}
}
