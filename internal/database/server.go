package database

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/daybook-project/daybook/internal/program"
)

// Options select the server to run.
type Options struct {
	Engine Engine
	// Directory is the parent of the data directory, which has the engine's
	// name.
	Directory string
	// Cgroup is the directory of the server's cgroup; "" is that of this
	// process.
	Cgroup string
	// BinaryLog makes MariaDB write and sync a binary log with each commit
	// (sync_binlog=1), as servers with replicas or incremental backups do. The
	// log grows with each commit, so that each sync waits for a journal
	// transaction, as every fsync of the redo log did in the paper's MySQL 5.7.
	// MariaDB's own redo log has a fixed size and is synced by fdatasync, which
	// needs no journal.
	BinaryLog bool
}

// place holds the paths of a server's files.
type place struct {
	// data is the data directory.
	data string
	// private is a directory on the host for socket and logs, outside the file
	// system under test.
	private string
}

func (p place) file(name string) string { return filepath.Join(p.private, name) }

// user is the user of the servers: both refuse to run as root, and need no
// access to the host.
var user = program.Nobody

func (o Options) place() (place, kind, error) {
	kind, err := o.Engine.kind()
	if err != nil {
		return place{}, nil, err
	}
	if o.Directory == "" {
		return place{}, nil, errors.New("no directory for the database")
	}
	directory, err := filepath.Abs(o.Directory)
	return place{data: filepath.Join(directory, string(o.Engine))}, kind, err
}

// Create makes the data directory and starts a temporary server to make the
// tables of the load with about rows rows. It needs root.
func Create(ctx context.Context, o Options, rows int) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot create a %s database in %s: %w", o.Engine, o.Directory, err)
		}
	}()
	p, kind, err := o.place()
	if err != nil {
		return err
	}
	if err := os.Mkdir(p.data, 0o700); err != nil {
		return err
	}
	if err := os.Chown(p.data, user.UID, user.GID); err != nil {
		return err
	}
	if p.private, err = makePrivate(); err != nil {
		return err
	}
	defer os.RemoveAll(p.private)
	if err := kind.initialize(ctx, p); err != nil {
		return err
	}
	server, err := Start(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(kind.fill(ctx, server.place, rows), server.Stop())
}

// makePrivate makes a directory for socket and logs. Its path is short, because
// the path of a socket may have at most 107 bytes.
func makePrivate() (string, error) {
	private, err := program.PrivateDirectory("database")
	if err != nil {
		return "", err
	}
	return private, os.Chown(private, user.UID, user.GID)
}

// Server is a running server.
type Server struct {
	place   place
	kind    kind
	engine  Engine
	process *program.Process
}

// Time-outs of servers. On a slow disk, both read and write at the start, and
// write all dirty data at the end.
const (
	readyPatience = 2 * time.Minute
	stopPatience  = 2 * time.Minute
	readyPause    = 50 * time.Millisecond
)

// Start starts a server on a data directory that Create made and returns when
// it accepts clients. After an error no server runs.
func Start(ctx context.Context, o Options) (s *Server, err error) {
	p, kind, err := o.place()
	if err != nil {
		return nil, err
	}
	if p.private, err = makePrivate(); err != nil {
		return nil, err
	}
	s = &Server{place: p, kind: kind, engine: o.Engine}
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot run %s on %s: %w", o.Engine, p.data, err)
			if s.process != nil {
				s.process.Kill()
			}
			err = errors.Join(err, os.RemoveAll(p.private))
			s = nil
		}
	}()
	path, arguments, err := kind.server(p, o)
	if err != nil {
		return s, err
	}
	s.process, err = program.Start(program.Command{Path: path, Args: arguments, Cgroup: o.Cgroup, User: &user, Directory: p.private})
	if err != nil {
		return s, err
	}
	return s, s.awaitReady(ctx)
}

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	for {
		ready, err := s.kind.ready(ctx, s.place)
		if ready || err != nil {
			return err
		}
		select {
		case <-s.process.Ended():
			return fmt.Errorf("it ended before it accepted clients: %s", s.process.Said())
		case <-ctx.Done():
			return fmt.Errorf("it accepts no clients: %w: %s", ctx.Err(), s.process.Said())
		case <-time.After(readyPause):
		}
	}
}

// PID is the process ID of the server.
func (s *Server) PID() int { return s.process.PID() }

// Load runs the clients, outside the server's cgroup, and returns what they
// measured.
func (s *Server) Load(ctx context.Context, l Load) (Result, error) {
	if err := l.Check(); err != nil {
		return Result{}, err
	}
	result, err := s.kind.load(ctx, s.place, l)
	if err != nil {
		return result, fmt.Errorf("cannot load %s: %w", s.engine, err)
	}
	return result, nil
}

// Stop shuts the server down normally and removes its socket; a second call
// does nothing.
func (s *Server) Stop() error {
	err := s.process.Stop(s.kind.stop(), stopPatience)
	return errors.Join(err, os.RemoveAll(s.place.private))
}
