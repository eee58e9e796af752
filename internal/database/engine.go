package database

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// Engine is a kind of database server.
type Engine string

// The engines.
const (
	MariaDB    Engine = "mariadb"
	PostgreSQL Engine = "postgresql"
)

// Engines lists them.
func Engines() []Engine { return []Engine{MariaDB, PostgreSQL} }

// kind is the part that differs between engines. A place holds the paths of a
// server's files.
type kind interface {
	// initialize initializes the data directory, which exists, is empty and
	// belongs to the server's user.
	initialize(ctx context.Context, p place) error
	// server is the program and its arguments.
	server(p place, o Options) (path string, arguments []string, err error)
	// ready reports whether the server accepts clients; an error is final.
	ready(ctx context.Context, p place) (bool, error)
	// fill makes the tables of the load.
	fill(ctx context.Context, p place, rows int) error
	// load runs the client for a given time.
	load(ctx context.Context, p place, l Load) (Result, error)
	// stop is the signal that shuts the server down normally.
	stop() syscall.Signal
}

func (e Engine) kind() (kind, error) {
	switch e {
	case MariaDB:
		return mariadb{}, nil
	case PostgreSQL:
		return postgresql{}, nil
	}
	return nil, fmt.Errorf("no database engine %q: want %s or %s", e, MariaDB, PostgreSQL)
}

// Load is the work of the clients.
type Load struct {
	// Clients is the number of concurrent connections, 1 to 256.
	Clients int
	// Time is the duration in whole seconds, 1 s to 1 h.
	Time time.Duration
}

// Check returns an error if the load is invalid.
func (l Load) Check() error {
	switch {
	case l.Clients < 1 || l.Clients > 256:
		return fmt.Errorf("%d clients: want 1 to 256", l.Clients)
	case l.Time < time.Second || l.Time > time.Hour || l.Time%time.Second != 0:
		return fmt.Errorf("a time of %v: want whole seconds, 1 s to 1 h", l.Time)
	}
	return nil
}

// Result is what the clients of a load measured.
type Result struct {
	// Seconds is the duration of the load.
	Seconds float64 `json:"seconds"`
	// Transactions that were committed.
	Transactions uint64 `json:"transactions"`
	// The latency of a transaction.
	MeanSeconds float64 `json:"mean_seconds"`
	P99Seconds  float64 `json:"p99_seconds"`
}

// PerSecond is the throughput.
func (r Result) PerSecond() float64 {
	if r.Seconds <= 0 {
		return 0
	}
	return float64(r.Transactions) / r.Seconds
}
