package kubetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/needs"
)

// Prometheus is a real one, on the node's own network.
type Prometheus struct{ n *Node }

// prometheusAddress is on the node's own network.
const prometheusAddress = "http://127.0.0.1:9090"

// StartPrometheus starts one that scrapes what a ServiceMonitor selects in its namespace,
// as the Prometheus operator would configure it.
func (n *Node) StartPrometheus(monitor Object) *Prometheus {
	n.t.Helper()
	var jobs []Object
	endpoints, _ := Field(monitor, "spec", "endpoints").([]any)
	for _, endpoint := range endpoints {
		jobs = append(jobs, n.scrapeJob(monitor, endpoint))
	}
	if len(jobs) == 0 {
		n.t.Fatalf("the ServiceMonitor has no endpoints: %v", monitor)
	}
	n.writeJSON("prometheus.json", Object{"scrape_configs": jobs})
	program := needs.Tool(n.t, "prometheus")
	n.running["prometheus"] = n.w.Spawn(exec.Command(program, "--config.file="+n.w.Path("prometheus.json"), "--storage.tsdb.path="+n.w.Path("prometheus"),
		"--web.listen-address="+strings.TrimPrefix(prometheusAddress, "http://")))
	n.Await("Prometheus is ready", func() bool {
		answer, err := http.Get(prometheusAddress + "/-/ready")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return &Prometheus{n}
}

// scrapeJob is the job of one endpoint of a ServiceMonitor. Debian's Prometheus cannot ask
// the API server for targets, so this process does, whenever Prometheus asks it.
func (n *Node) scrapeJob(monitor Object, endpoint any) Object {
	namespace := Text(monitor, "metadata", "namespace")
	var selector []string
	labels, _ := Field(monitor, "spec", "selector", "matchLabels").(Object)
	for name, value := range labels {
		selector = append(selector, fmt.Sprint(name, "=", value))
	}
	path := "/api/v1/namespaces/" + namespace + "/endpoints?labelSelector=" + url.QueryEscape(strings.Join(selector, ","))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		list, err := n.API.Get(path)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(targetsOf(list, Text(endpoint, "port")))
	}))
	n.whole.Cleanup(server.Close)
	var rules []Object
	relabelings, _ := Field(endpoint, "relabelings").([]any)
	for _, r := range relabelings {
		rules = append(rules, Object{"source_labels": Field(r, "sourceLabels"), "target_label": Field(r, "targetLabel")})
	}
	return Object{
		"job_name": namespace + "/" + Text(monitor, "metadata", "name"), "honor_labels": Field(endpoint, "honorLabels") == true,
		"scrape_interval": Text(endpoint, "interval"), "scrape_timeout": Text(endpoint, "interval"), "relabel_configs": rules,
		"http_sd_configs": []Object{{"url": server.URL, "refresh_interval": "1s"}},
	}
}

// targetsOf are the addresses of a port of endpoints, with the label of their nodes.
func targetsOf(endpoints Object, port string) []Object {
	targets := []Object{}
	for _, e := range Items(endpoints) {
		subsets, _ := e["subsets"].([]any)
		for _, subset := range subsets {
			ports, _ := Field(subset, "ports").([]any)
			addresses, _ := Field(subset, "addresses").([]any)
			for _, p := range ports {
				for _, address := range addresses {
					if Text(p, "name") == port {
						targets = append(targets, Object{"targets": []string{fmt.Sprintf("%s:%v", Text(address, "ip"), Field(p, "port"))},
							"labels": Object{"__meta_kubernetes_pod_node_name": Text(address, "nodeName")}})
					}
				}
			}
		}
	}
	return targets
}

// errNoValue means that a query has no answer that is one number.
var errNoValue = errors.New("no number")

// Query evaluates an expression of PromQL that gives one number, at a time.
func (p *Prometheus) Query(expression string, at time.Time) (float64, error) {
	answer, err := http.Get(prometheusAddress + "/api/v1/query?" + url.Values{
		"query": {expression}, "time": {strconv.FormatFloat(float64(at.UnixMilli())/1e3, 'f', 3, 64)}}.Encode())
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var content struct {
		Status, Error string
		Data          struct {
			Result []struct{ Value []any }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&content); err != nil || content.Status != "success" {
		return 0, fmt.Errorf("%s: %w: %s", expression, errors.Join(err, errNoValue), content.Error)
	}
	if len(content.Data.Result) != 1 || len(content.Data.Result[0].Value) != 2 {
		return 0, fmt.Errorf("%s: %w but %d series", expression, errNoValue, len(content.Data.Result))
	}
	value, err := strconv.ParseFloat(fmt.Sprint(content.Data.Result[0].Value[1]), 64)
	if err == nil && (math.IsNaN(value) || math.IsInf(value, 0)) {
		err = fmt.Errorf("%s: %w but %v", expression, errNoValue, value)
	}
	return value, err
}

// Take takes the objects of a kind out of those of a manifest.
func Take(objects []Object, kind string) (taken, rest []Object) {
	for _, object := range objects {
		if Text(object, "kind") == kind {
			taken = append(taken, object)
		} else {
			rest = append(rest, object)
		}
	}
	return taken, slices.Clip(rest)
}
