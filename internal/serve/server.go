package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/serve/endpoint"
)

const (
	// maxScrapes is how many scrapes are answered at a time.
	maxScrapes = 4
	// drainTime is how long open requests may take after Close.
	drainTime = 2 * time.Second
	// healthyIntervals is how many intervals may pass without a sample.
	healthyIntervals = 3
	// startTime is how much longer than the interval a sample may take, the first one too,
	// for slow disks and busy hosts.
	startTime = 2 * time.Minute
)

// Server answers /metrics and /healthz on one address.
type Server struct {
	listener net.Listener
	http     *http.Server
	done     chan struct{}
	err      error
}

// Start listens on address (see [endpoint.Parse]) and answers until Close. Version
// becomes the label of daybook_build_info; more collectors are served besides
// metrics, which may be nil. A collector that is a [Healthy] counts for the health check.
// A series that cannot be served is left out, and log gets the error, at most one in an hour.
func Start(address, version string, log *slog.Logger, metrics *Metrics, more ...prometheus.Collector) (*Server, error) {
	listener, err := net.Listen(listenArguments(address))
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("cannot serve metrics: %w: another program has this port, such as daybook-control or daybook-metrics; choose another one", err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot serve metrics: %w", err)
	}
	handler, err := newHandler(version, log, metrics, more...)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	s := &Server{
		listener: listener,
		http: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      30 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    16 << 10,
		},
		done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.err = fmt.Errorf("cannot continue serving metrics: %w", err)
		}
	}()
	return s, nil
}

// listenArguments are those of net.Listen. With "tcp", 0.0.0.0 would also listen on IPv6.
func listenArguments(address string) (network, at string) {
	host, port, _ := net.SplitHostPort(address)
	switch {
	case host == endpoint.All:
		return "tcp", net.JoinHostPort("", port)
	case net.ParseIP(host).To4() != nil && !strings.Contains(host, ":"):
		return "tcp4", address
	}
	return "tcp", address
}

// Addr is the address with the actual port.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close lets open requests finish within two seconds, and stops.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	<-s.done
	return errors.Join(err, s.err)
}

func newHandler(version string, log *slog.Logger, metrics *Metrics, more ...prometheus.Collector) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "daybook_build_info", Help: "Always 1; the label is the version of daybook.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	if metrics != nil {
		more = append(more, metrics)
	}
	for _, c := range append(more, info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("cannot register metrics: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, ErrorHandling: promhttp.ContinueOnError, ErrorLog: &scrapeLog{log: log},
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { health(w, metrics, more) })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "daybook "+version+"\n/metrics  Prometheus metrics\n/healthz  200 while samples arrive\n")
	})
	return mux, nil
}

// scrapeLog logs the errors of scrapes, which come again with each. It is safe for concurrent use.
type scrapeLog struct {
	log    *slog.Logger
	mutex  sync.Mutex
	logged time.Time
}

// scrapeLogPause is between two errors in the log.
const scrapeLogPause = time.Hour

// Println implements promhttp.Logger.
func (l *scrapeLog) Println(text ...any) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.logged.IsZero() || time.Since(l.logged) > scrapeLogPause {
		l.logged = time.Now()
		l.log.Error("cannot serve all metrics", "why", strings.TrimSpace(fmt.Sprintln(text...)))
	}
}

// Healthy is a collector that can say whether its part works.
type Healthy interface{ Healthy() error }

// health answers 200 while samples arrive and all parts work, else 503 with the reason.
func health(w http.ResponseWriter, metrics *Metrics, parts []prometheus.Collector) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for _, part := range parts {
		if part, ok := part.(Healthy); ok {
			if err := part.Healthy(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprintln(w, err)
				return
			}
		}
	}
	if metrics == nil || metrics.expectsNone() {
		fmt.Fprintln(w, "ok")
		return
	}
	age, interval := metrics.age()
	limit := startTime + time.Duration(healthyIntervals*interval*float64(time.Second))
	if age > limit {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, "no sample for %.0f s; at most %.0f s are expected\n", age.Seconds(), limit.Seconds())
		return
	}
	fmt.Fprintf(w, "ok; the last sample is %.0f s old\n", age.Seconds())
}
