package database

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/daybook-project/daybook/internal/program"
)

// postgresql is PostgreSQL with its default settings and pgbench's own load:
// each transaction changes three rows and inserts one, and its commit waits
// until the log is on the disk.
type postgresql struct{}

const (
	postgresqlUser     = "postgres"
	postgresqlDatabase = "postgres"
	// pgbenchRowsPerScale is the number of rows per unit of pgbench's scale.
	pgbenchRowsPerScale = 100_000
	maxPgbenchScale     = 100
)

// tool finds a program of PostgreSQL. Debian installs the programs of each
// version outside the PATH, and has scripts in the PATH that search for
// configured servers.
func (postgresql) tool(name string) (string, error) {
	found, err := filepath.Glob(filepath.Join("/usr/lib/postgresql/*/bin", name))
	if err == nil && len(found) > 0 {
		return slices.Max(found), nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("cannot find PostgreSQL's program %s in /usr/lib/postgresql or the PATH: install postgresql", name)
	}
	return path, nil
}

func (d postgresql) run(ctx context.Context, p place, tool string, arguments ...string) (string, error) {
	path, err := d.tool(tool)
	if err != nil {
		return "", err
	}
	return program.Run(ctx, program.Command{Path: path, Args: arguments, User: &user, Directory: p.private})
}

func (d postgresql) initialize(ctx context.Context, p place) error {
	_, err := d.run(ctx, p, "initdb", "--pgdata="+p.data, "--username="+postgresqlUser, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions")
	return err
}

func (d postgresql) server(p place, _ Options) (string, []string, error) {
	path, err := d.tool("postgres")
	return path, []string{"-D", p.data, "-k", p.private, "-c", "listen_addresses="}, err
}

// ready runs pg_isready: 0 means yes, 1 and 2 mean not yet.
func (d postgresql) ready(ctx context.Context, p place) (bool, error) {
	_, err := d.run(ctx, p, "pg_isready", "--host="+p.private, "--quiet")
	var exit *exec.ExitError
	if errors.As(err, &exit) && (exit.ExitCode() == 1 || exit.ExitCode() == 2) {
		return false, nil
	}
	return err == nil, err
}

func (d postgresql) fill(ctx context.Context, p place, rows int) error {
	scale := min(max(rows/pgbenchRowsPerScale, 1), maxPgbenchScale)
	_, err := d.run(ctx, p, "pgbench", "--host="+p.private, "--username="+postgresqlUser, "--initialize", "--quiet", "--scale="+strconv.Itoa(scale), postgresqlDatabase)
	return err
}

func (d postgresql) load(ctx context.Context, p place, l Load) (Result, error) {
	log, err := os.MkdirTemp(p.private, "log-")
	if err == nil {
		err = os.Chown(log, user.UID, user.GID)
	}
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(log)
	text, err := d.run(ctx, p, "pgbench", "--host="+p.private, "--username="+postgresqlUser,
		"--client="+strconv.Itoa(l.Clients), "--time="+strconv.Itoa(int(l.Time.Seconds())), "--no-vacuum",
		"--log", "--log-prefix="+filepath.Join(log, "transactions"), postgresqlDatabase)
	if err != nil {
		return Result{}, err
	}
	r, err := parsePgbench(text)
	if err != nil {
		return r, err
	}
	r.P99Seconds, err = percentileOfLogs(log, 0.99)
	return r, err
}

// SIGINT is the fast shutdown: it disconnects clients and writes all data.
func (postgresql) stop() syscall.Signal { return syscall.SIGINT }
