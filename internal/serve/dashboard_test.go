package serve

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/agent"
	"github.com/daybook-project/daybook/volume"
)

// dashboard is the part of a Grafana dashboard with queries in it.
type dashboard struct {
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name  string          `json:"name"`
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID      int    `json:"id"`
		Type    string `json:"type"`
		Title   string `json:"title"`
		GridPos struct {
			X, Y, W, H int
		} `json:"gridPos"`
		Targets []struct {
			RefID        string `json:"refId"`
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
		} `json:"targets"`
	} `json:"panels"`
}

func readDashboard(t *testing.T) (d dashboard, text string) {
	t.Helper()
	content, err := os.ReadFile("../../deploy/grafana/daybook.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	return d, string(content)
}

// offered returns the names of the metrics in a scrape, with their labels.
func offered(t *testing.T) map[string][]string {
	t.Helper()
	m := NewMetrics(10)
	m.Observe(memorySample())
	m.Observe(waitsSample())
	controlled := testSample(alpha())
	controlled.Devices[0].Control = &account.Control{Actuator: account.ActuatorWeights}
	m.Observe(controlled)
	pools := NewPools(func() ([]string, error) { return []string{"/pool"}, nil })
	pools.read = func(string) (poolReading, error) {
		return poolReading{volumes: []volume.Overview{{Record: volume.Record{Name: "db1"}, Mountpoint: "/srv/db1", FreeBytes: 1}}}, nil
	}
	registry := prometheus.NewRegistry()
	if err := errors.Join(registry.Register(m), registry.Register(pools)); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{"daybook_build_info": {"version"}}
	for _, family := range families {
		var labels []string
		for _, l := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if family.GetMetric()[0].GetSummary() != nil {
			names[family.GetName()+"_sum"], names[family.GetName()+"_count"] = labels, labels
			continue
		}
		if family.GetMetric()[0].GetHistogram() != nil {
			names[family.GetName()+"_sum"] = labels
			names[family.GetName()+"_bucket"] = append(labels, "le")
			continue
		}
		names[family.GetName()] = labels
	}
	offeredByAgent(t, names)
	return names
}

// descriptor matches the text of a description of a metric.
var descriptor = regexp.MustCompile(`fqName: "(\w+)".* variableLabels: \{([^}]*)\}`)

// offeredByAgent adds the metrics that the agent offers beside those of a scrape.
func offeredByAgent(t *testing.T, names map[string][]string) {
	t.Helper()
	all := make(chan *prometheus.Desc, 100)
	(&agent.Agent{}).Describe(all)
	close(all)
	for d := range all {
		found := descriptor.FindStringSubmatch(d.String())
		if found == nil {
			t.Fatalf("the description of a metric is not understood: %s", d)
		}
		names[found[1]] = strings.FieldsFunc(found[2], func(r rune) bool { return r == ',' || r == ' ' })
	}
}

var (
	metricName  = regexp.MustCompile(`daybook_[a-z0-9_]+`)
	selector    = regexp.MustCompile(`(daybook_[a-z0-9_]+)\{([^}]*)\}`)
	matcherName = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	legendLabel = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
)

func TestDashboardQueriesOnlyOfferedMetrics(t *testing.T) {
	names := offered(t)
	d, text := readDashboard(t)
	queries := 0
	for _, panel := range d.Panels {
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("panel %q has no query", panel.Title)
		}
		for _, target := range panel.Targets {
			queries++
			for _, name := range metricName.FindAllString(target.Expr, -1) {
				if _, there := names[name]; !there {
					t.Errorf("panel %q asks for %s, which is not offered", panel.Title, name)
				}
				changing := strings.Contains(target.Expr, "rate("+name) || strings.Contains(target.Expr, "increase("+name)
				if strings.HasSuffix(name, "_total") && !changing {
					t.Errorf("panel %q shows the counter %s without a rate", panel.Title, name)
				}
			}
			for _, match := range selector.FindAllStringSubmatch(target.Expr, -1) {
				for _, label := range matcherName.FindAllStringSubmatch(match[2], -1) {
					if label[1] != "instance" && !slices.Contains(names[match[1]], label[1]) {
						t.Errorf("panel %q: %s has no label %s", panel.Title, match[1], label[1])
					}
				}
			}
			for _, label := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				name := metricName.FindString(target.Expr)
				if label[1] != "instance" && !slices.Contains(names[name], label[1]) {
					t.Errorf("panel %q: its legend needs the label %s, which %s does not have", panel.Title, label[1], name)
				}
			}
		}
	}
	if queries < 15 {
		t.Errorf("only %d queries were found", queries)
	}
	for _, name := range metricName.FindAllString(text, -1) {
		if _, there := names[name]; !there {
			t.Errorf("%s is in the dashboard, but not offered", name)
		}
	}
}

var aggregation = regexp.MustCompile(`\b(?:sum|avg|min|max|count|topk)\b\s*(?:by \(([^)]*)\))?`)

// Prometheus adds the label instance. Hosts have disks and containers of the same names.
func TestDashboardKeepsHostsApart(t *testing.T) {
	d, _ := readDashboard(t)
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			chosen := 0
			for _, match := range selector.FindAllStringSubmatch(target.Expr, -1) {
				if strings.Contains(match[2], `instance=~"$instance"`) {
					chosen++
				}
			}
			if names := len(metricName.FindAllString(target.Expr, -1)); chosen != names {
				t.Errorf("panel %q: %d of %d series belong to the chosen hosts: %s", panel.Title, chosen, names, target.Expr)
			}
			for _, match := range aggregation.FindAllStringSubmatch(target.Expr, -1) {
				if !slices.Contains(strings.Split(strings.ReplaceAll(match[1], " ", ""), ","), "instance") {
					t.Errorf("panel %q adds up hosts: %s", panel.Title, target.Expr)
				}
			}
			// A heat map orders its rows by a legend that is the bound of the bucket.
			if !strings.Contains(target.LegendFormat, "{{instance}}") && panel.Type != "heatmap" {
				t.Errorf("panel %q: its legend %q does not name the host", panel.Title, target.LegendFormat)
			}
		}
	}
	for _, variable := range d.Templating.List {
		query := string(variable.Query)
		if strings.Contains(query, "label_values") && variable.Name != "instance" && !strings.Contains(query, `instance=~\"$instance\"`) {
			t.Errorf("the variable %s offers what other hosts have: %s", variable.Name, query)
		}
	}
}

// A new metric must be added to a panel, but for those of pools, of which a panel shows what
// needs a look, and the one that only gives names to the series of others.
func TestDashboardShowsEveryMetric(t *testing.T) {
	_, text := readDashboard(t)
	for name := range offered(t) {
		ofPool := strings.HasPrefix(name, "daybook_pool_") || strings.HasPrefix(name, "daybook_volume_")
		if !ofPool && name != "daybook_agent_container_info" && !strings.Contains(text, name) {
			t.Errorf("%s is in no panel", name)
		}
	}
}

// Grafana keeps one result for each refId of a panel.
func TestDashboardPanelsNameTheirQueriesDifferently(t *testing.T) {
	d, _ := readDashboard(t)
	for _, panel := range d.Panels {
		named := map[string]bool{}
		for _, target := range panel.Targets {
			if target.RefID == "" || named[target.RefID] {
				t.Errorf("panel %q: two queries have the refId %q, or it is empty", panel.Title, target.RefID)
			}
			named[target.RefID] = true
		}
	}
}

// An agent with "account: false" takes no samples, and has no disks.
func TestDashboardOffersHostsThatTakeNoSamples(t *testing.T) {
	d, _ := readDashboard(t)
	for _, variable := range d.Templating.List {
		if query := string(variable.Query); variable.Name == "instance" && !strings.Contains(query, "label_values(daybook_build_info, instance)") {
			t.Errorf("the hosts are those of %s", query)
		}
	}
}

func TestDashboardPanelsDoNotOverlap(t *testing.T) {
	d, _ := readDashboard(t)
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, panel := range d.Panels {
		if ids[panel.ID] {
			t.Errorf("two panels have the id %d", panel.ID)
		}
		ids[panel.ID] = true
		g := panel.GridPos
		if g.W <= 0 || g.H <= 0 || g.X+g.W > 24 {
			t.Errorf("panel %q has the place %+v", panel.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other, there := taken[[2]int{x, y}]; there {
					t.Fatalf("%q overlaps %q", panel.Title, other)
				}
				taken[[2]int{x, y}] = panel.Title
			}
		}
	}
}

// Waits have the device of the file system, which may be a partition of the chosen disk. One on
// the device mapper that is no disk with an account of its own can be on the chosen disk, too.
func TestDashboardShowsWaitsOfTheChosenDiskAlone(t *testing.T) {
	d, _ := readDashboard(t)
	found := 0
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			if !waitSelector.MatchString(target.Expr) {
				continue
			}
			found++
			for _, c := range []struct {
				chosen, device string
				ownDisk, shown bool
			}{
				{"sda", "sda", true, true}, {"sda", "sda1", false, true}, {"sda", "sdb", true, false}, {"sda", "sdaa", true, false}, {"sda", "sdaa1", false, false},
				{"sda|dm-1", "sda3", false, true}, {"sda|dm-1", "dm-1", true, true}, {"sda|dm-1", "dm-10", true, false}, {"dm-1", "dm-1", true, true},
				{"sda", "dm-0", false, true}, {"sda|dm-1", "dm-10", false, true}, {"sda", "dm-0", true, false},
				{"nvme0n1", "nvme0n1", true, true}, {"nvme0n1", "nvme0n1p2", false, true}, {"nvme0n1", "nvme0n10", true, false}, {"nvme0n1", "nvme0n10p1", false, false},
				{"loop1", "loop1p1", false, true}, {"loop1", "loop10", true, false}, {"mmcblk0", "mmcblk0p1", false, true}, {"md0", "md0p1", false, true}, {"xvda", "xvda1", false, true},
				{".*", "sda1", false, true}, {".*", "dm-10", true, true}, {".*", "dm-10", false, true}, {".*", "nvme0n1p1", false, true},
			} {
				if got := showsWaits(target.Expr, c.chosen, c.device, c.ownDisk); got != c.shown {
					t.Errorf("panel %q with the disk %s: %s (a disk of its own: %v) is shown: %v", panel.Title, c.chosen, c.device, c.ownDisk, got)
				}
			}
		}
	}
	if found < 4 {
		t.Errorf("only %d queries were found", found)
	}
}

var (
	waitSelector  = regexp.MustCompile(`(?:daybook_blamed_seconds_total|daybook_wait_duration_seconds_\w+)\{([^}]*)\}`)
	deviceMatcher = regexp.MustCompile(`device=~"([^"]*)"`)
)

// showsWaits says whether a query takes the waits of a device. The operators bind in this order:
// unless, or.
func showsWaits(query, chosen, device string, ownDisk bool) bool {
	for part := range strings.SplitSeq(query, " or ") {
		excluded := ownDisk && strings.Contains(part, " unless on (instance, device) daybook_unaccounted_bytes{")
		for _, match := range waitSelector.FindAllStringSubmatch(part, -1) {
			if !excluded && matchesDevice(match[1], chosen, device) {
				return true
			}
		}
	}
	return false
}

// matchesDevice says whether the matchers of a selector take a device. Prometheus anchors
// them.
func matchesDevice(matchers, chosen, device string) bool {
	for _, m := range deviceMatcher.FindAllStringSubmatch(matchers, -1) {
		if !regexp.MustCompile("^(?:" + strings.ReplaceAll(m[1], "$device", chosen) + ")$").MatchString(device) {
			return false
		}
	}
	return true
}
