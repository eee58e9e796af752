package serve

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/daybook-project/daybook/internal/serve/endpoint"
)

func startServer(t *testing.T, m *Metrics) string {
	t.Helper()
	s, err := Start("127.0.0.1:0", "v1.2.3", slog.New(slog.DiscardHandler), m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + s.Addr().String()
}

func get(t *testing.T, method, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestAScrapeOverHTTPGetsTheMetrics(t *testing.T) {
	m := NewMetrics(10)
	url := startServer(t, m)
	m.Observe(testSample(alpha()))
	status, body := get(t, "GET", url+"/metrics")
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	for _, want := range []string{
		`daybook_journal_bytes_total{cgroup="/ca",container="alpha",device="loop0",runtime="docker"} 3`,
		`daybook_build_info{version="v1.2.3"} 1`, "# HELP daybook_journal_bytes_total ", "# TYPE daybook_journal_bytes_total counter",
		"go_goroutines", "process_cpu_seconds_total",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("lacks %s", want)
		}
	}
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "daybook_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// twice is a collector with a mistake: two series have the same labels.
type twice struct{ desc *prometheus.Desc }

func (c twice) Describe(descs chan<- *prometheus.Desc) { descs <- c.desc }

func (c twice) Collect(out chan<- prometheus.Metric) {
	for range 2 {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, 1)
	}
}

func TestAScrapeServesAllButWhatIsWrongAndLogsItOnce(t *testing.T) {
	var log bytes.Buffer
	m := NewMetrics(10)
	m.Observe(testSample(alpha()))
	s, err := Start("127.0.0.1:0", "v1.2.3", slog.New(slog.NewTextHandler(&log, nil)), m, twice{desc("daybook_twice", "Twice.", nil)})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		status, body := get(t, "GET", "http://"+s.Addr().String()+"/metrics")
		if want := `daybook_journal_bytes_total{cgroup="/ca",container="alpha",device="loop0",runtime="docker"} 3`; status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("status %d: %s", status, body)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if logged := log.String(); strings.Count(logged, "cannot serve all metrics") != 1 || !strings.Contains(logged, "daybook_twice") {
		t.Errorf("logged: %s", logged)
	}
}

func TestOtherRequestsAreRefused(t *testing.T) {
	url := startServer(t, NewMetrics(10))
	if status, _ := get(t, "POST", url+"/metrics"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST got %d", status)
	}
	if status, _ := get(t, "GET", url+"/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("pprof got %d", status)
	}
	if status, body := get(t, "GET", url+"/"); status != http.StatusOK || !strings.Contains(body, "/metrics") {
		t.Errorf("the index is %d, %q", status, body)
	}
}

func TestHealthFailsWithoutSamples(t *testing.T) {
	m := NewMetrics(10)
	url := startServer(t, m)
	if status, body := get(t, "GET", url+"/healthz"); status != http.StatusOK {
		t.Errorf("at the start: %d, %s", status, body)
	}
	m.Observe(testSample(alpha())) // of 5 seconds
	m.mutex.Lock()
	m.observed = m.observed.Add(-startTime - 16*time.Second)
	m.mutex.Unlock()
	if status, body := get(t, "GET", url+"/healthz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "no sample for 136 s") {
		t.Errorf("without samples: %d, %s", status, body)
	}
	m.Observe(testSample(alpha()))
	if status, body := get(t, "GET", url+"/healthz"); status != http.StatusOK {
		t.Errorf("with a new sample: %d, %s", status, body)
	}
}

func TestHealthWaitsForASampleOfALongInterval(t *testing.T) {
	m := NewMetrics(10)
	url := startServer(t, m)
	since := func(age time.Duration) int {
		m.mutex.Lock()
		m.observed = time.Now().Add(-age)
		m.mutex.Unlock()
		status, _ := get(t, "GET", url+"/healthz")
		return status
	}
	m.Expect(time.Hour)
	if status := since(time.Hour); status != http.StatusOK {
		t.Errorf("after an hour without the first sample: %d", status)
	}
	m.Observe(testSample(alpha())) // of 5 seconds: the interval was changed
	if status := since(time.Hour); status != http.StatusOK {
		t.Errorf("after an hour without the second sample: %d", status)
	}
	if status := since(4 * time.Hour); status != http.StatusServiceUnavailable {
		t.Errorf("after four hours: %d", status)
	}
}

func TestHealthMissesNoSampleWhereNoneIsExpected(t *testing.T) {
	m := NewMetrics(10)
	url := startServer(t, m)
	m.ExpectNone()
	m.mutex.Lock()
	m.observed = time.Now().Add(-time.Hour)
	m.mutex.Unlock()
	if status, body := get(t, "GET", url+"/healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("%d, %q", status, body)
	}
	// A sample is expected after all, such as when a disk to control has come.
	m.Expect(5 * time.Second)
	if status, body := get(t, "GET", url+"/healthz"); status != http.StatusOK || !strings.HasPrefix(body, "ok; the last sample is 0 s") {
		t.Errorf("%d, %q", status, body)
	}
	m.mutex.Lock()
	m.observed = m.observed.Add(-time.Hour)
	m.mutex.Unlock()
	if status, body := get(t, "GET", url+"/healthz"); status != http.StatusServiceUnavailable {
		t.Errorf("an hour without a sample: %d, %q", status, body)
	}
}

func TestCloseReleasesTheAddressAndOneInUseIsAnError(t *testing.T) {
	s, err := Start("127.0.0.1:0", "", slog.New(slog.DiscardHandler), NewMetrics(1))
	if err != nil {
		t.Fatal(err)
	}
	address := s.Addr().String()
	if second, err := Start(address, "", slog.New(slog.DiscardHandler), NewMetrics(1)); err == nil {
		second.Close()
		t.Error("two servers have one address")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	listener.Close()
}

// "tcp" would also listen on IPv6.
func TestAnIPv4AddressServesIPv4Only(t *testing.T) {
	s, err := Start("0.0.0.0:0", "test", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if at := s.Addr().String(); !strings.HasPrefix(at, "0.0.0.0:") {
		t.Errorf("it listens on %s", at)
	}
}

// The pods of an IPv6 cluster have no IPv4 address, and those of most others no IPv6 address.
func TestTheAddressOfAllServesBothIPv4AndIPv6(t *testing.T) {
	text, err := endpoint.Parse("*:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(text, "test", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		if own, err := net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
			t.Logf("this host has no %s: %v", host, err)
			continue
		} else if err := own.Close(); err != nil {
			t.Fatal(err)
		}
		if status, body := get(t, "GET", "http://"+net.JoinHostPort(host, port)+"/healthz"); status != http.StatusOK {
			t.Errorf("%s: %d, %s", host, status, body)
		}
	}
}

func TestAPortThatIsInUseIsExplained(t *testing.T) {
	first, err := Start("127.0.0.1:0", "test", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := Start(first.Addr().String(), "test", slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(), "another program has this port") {
		t.Errorf("a second server on the port: %v", err)
	}
}
