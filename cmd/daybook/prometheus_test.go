package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/needs"
)

// freePort returns a port on 127.0.0.1 that is free now.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// prometheusServer is a real Prometheus with its own data directory; it scrapes
// each second.
type prometheusServer struct{ url string }

func startPrometheus(t *testing.T, instances ...string) prometheusServer {
	t.Helper()
	program := needs.Tool(t, "prometheus")
	dir, address := t.TempDir(), "127.0.0.1:"+freePort(t)
	config := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n- job_name: daybook\n  static_configs: [{targets: [%s]}]\n", strings.Join(instances, ","))
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	p := prometheusServer{"http://" + address}
	for deadline := time.Now().Add(awaittest.Patience); ; time.Sleep(50 * time.Millisecond) {
		if response, err := http.Get(p.url + "/-/ready"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return p
			}
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("Prometheus does not become ready: %s", text)
		}
	}
}

// get queries the HTTP API.
func (p prometheusServer) get(t *testing.T, path string, parameters url.Values, data any) {
	t.Helper()
	response, err := http.Get(p.url + path + "?" + parameters.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s %v: %v, %s", path, parameters, err, answer.Error)
	}
}

// result is one series of a query, with one value or those of a range.
type result struct {
	Metric map[string]string
	Value  [2]any
	Values [][2]any
}

func number(t *testing.T, value [2]any) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(fmt.Sprint(value[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// at evaluates an expression at one time.
func (p prometheusServer) at(t *testing.T, expression string, at time.Time) []result {
	t.Helper()
	var data struct{ Result []result }
	p.get(t, "/api/v1/query", url.Values{"query": {expression}, "time": {unixTime(at)}}, &data)
	return data.Result
}

// during evaluates an expression at each second.
func (p prometheusServer) during(t *testing.T, expression string, from, to time.Time) []result {
	t.Helper()
	var data struct{ Result []result }
	p.get(t, "/api/v1/query_range", url.Values{"query": {expression}, "start": {unixTime(from)}, "end": {unixTime(to)}, "step": {"1"}}, &data)
	return data.Result
}

// scrapes returns when Prometheus scraped an instance, after from and until to.
func (p prometheusServer) scrapes(t *testing.T, instance string, from, to time.Time) (times []time.Time) {
	t.Helper()
	length := max(1, to.Sub(from).Milliseconds())
	for _, series := range p.at(t, fmt.Sprintf("daybook_samples_total{instance=%q}[%dms]", instance, length), to) {
		for _, value := range series.Values {
			if seconds, ok := value[0].(float64); ok {
				times = append(times, time.UnixMilli(int64(math.Round(1e3*seconds))))
			}
		}
	}
	return times
}

// labelValues returns the values of a label of the series that a selector
// matches.
func (p prometheusServer) labelValues(t *testing.T, selector, label string) (values []string) {
	t.Helper()
	p.get(t, "/api/v1/label/"+label+"/values", url.Values{"match[]": {selector}}, &values)
	return values
}

func unixTime(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1e3, 'f', 3, 64)
}
