package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/daybook-project/daybook/internal/needs"
)

// documentedAlert is a line of the table of alerts in docs/monitoring.md.
type documentedAlert struct {
	Alert string `yaml:"alert"`
	Expr  string `yaml:"expr"`
	For   string `yaml:"for,omitempty"`
}

func documentedAlerts(t *testing.T) (alerts []documentedAlert) {
	t.Helper()
	page, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Alert\n")
	for _, line := range regexp.MustCompile("(?m)^\\| (.*) \\| `([^|]*)` \\| (.*)\\|$").FindAllStringSubmatch(section, -1) {
		alerts = append(alerts, documentedAlert{Alert: line[1], Expr: line[2], For: strings.TrimSpace(line[3])})
	}
	if len(alerts) < 9 {
		t.Fatalf("only %d alerts were found", len(alerts))
	}
	return alerts
}

// Prometheus itself evaluates the alerts, with scripted series.
func TestTheDocumentedAlertsFireWhenTheyShould(t *testing.T) {
	promtool := needs.Tool(t, "promtool")
	alerts := documentedAlerts(t)
	tests, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range alerts {
		if !strings.Contains(string(tests), alert.Alert) {
			t.Errorf("no test of: %s", alert.Alert)
		}
	}
	rules, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "daybook", "rules": alerts}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"rules.yaml": rules, "tests.yaml": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(promtool, "test", "rules", filepath.Join(dir, "tests.yaml")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
