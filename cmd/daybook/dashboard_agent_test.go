package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/cgroup"
)

func readDashboard(t *testing.T) (dashboard grafanaDashboard) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/daybook.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard
}

// agentQueries are the queries of the dashboard for metrics of the agent, by panel title.
func agentQueries(dashboard grafanaDashboard) map[string][]string {
	queries := map[string][]string{}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			if strings.Contains(target.Expr, "daybook_agent_") {
				queries[panel.Title] = append(queries[panel.Title], target.Expr)
			}
		}
	}
	return queries
}

func TestTheDashboardShowsTheJournalsOfPods(t *testing.T) {
	queries := agentQueries(readDashboard(t))
	if len(queries) == 0 {
		t.Fatal("no panel is the agent's")
	}
	n := newAgentNode(t)
	// On cgroup v1, kernels from 6.10 on count the I/O of a disk without BFQ only if it had a limit.
	tree, err := cgroup.Find()
	if err == nil && tree.Version() == cgroup.V1 {
		err = errors.Join(tree.SetLimit(n.cgroup, n.fs.Disk.Dev, cgroup.Limit{ReadBps: 1 << 40}), tree.SetLimit(n.cgroup, n.fs.Disk.Dev, cgroup.Limit{}))
	}
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0], "agent", "--config", n.file)
	command.Env = append(os.Environ(), commandVariable+"=1")
	daemon := n.w.Spawn(command)
	address, get := n.serving(daemon)
	metrics := ""
	p := startPrometheus(t, address)
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(daemon.Log)
			t.Logf("the agent's log:\n%s\nits metrics:\n%s", text, strings.Join(regexp.MustCompile(`(?m)^daybook_agent_.*$`).FindAllString(metrics, -1), "\n"))
		}
	})
	for title, all := range queries {
		for _, query := range all {
			query = strings.NewReplacer("$__rate_interval", "10s", "$instance", ".*").Replace(query)
			awaittest.Until(t, awaittest.Patience, title+" shows something: "+query, func() bool {
				time.Sleep(100 * time.Millisecond)
				metrics = get("/metrics")
				series := p.at(t, query, time.Now())
				return len(series) == 1 && series[0].Metric["instance"] == address
			})
		}
	}
	n.end(t, daemon)
}
