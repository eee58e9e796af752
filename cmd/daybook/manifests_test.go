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
						Containers []struct{ Args []string }
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
			}
		}
	}
	if configs != 1 || commands != 1 {
		t.Errorf("%d configurations, %d commands", configs, commands)
	}
}

func TestAlertsOfTheChartAreOnMetricsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../deploy/helm/daybook/templates/prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names strings.Builder
	for _, collector := range []prometheus.Collector{serve.NewMetrics(1), serve.NewPools(func() ([]string, error) { return nil, nil }), &agent.Agent{}} {
		descs := make(chan *prometheus.Desc, 1000)
		collector.Describe(descs)
		close(descs)
		for d := range descs {
			names.WriteString(d.String())
		}
	}
	used := regexp.MustCompile(`daybook_\w+`).FindAllString(string(text), -1)
	if len(used) < 6 {
		t.Errorf("only %q", used)
	}
	for _, name := range used {
		if !strings.Contains(names.String(), `"`+name+`"`) {
			t.Errorf("an alert is on %s, which is no metric", name)
		}
	}
}
