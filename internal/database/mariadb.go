package database

import (
	"context"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/daybook-project/daybook/internal/program"
)

// mariadb is MariaDB with InnoDB configured like MySQL in paper 2: direct I/O,
// autocommit, the redo log synced with each commit, and inserts from sysbench
// into ten tables.
type mariadb struct{}

const (
	mariadbTables   = 10
	mariadbDatabase = "sbtest" // sysbench's own name for it
	// mariadbPoolBytes is larger than the data set, so that the load measures
	// writes.
	mariadbPoolBytes = 128 << 20
	mariadbLogBytes  = 64 << 20
	greetingPatience = time.Second
)

func (mariadb) initialize(ctx context.Context, p place) error {
	_, err := program.Run(ctx, program.Command{
		Path: "mariadb-install-db",
		Args: []string{
			"--no-defaults", "--datadir=" + p.data, "--auth-root-authentication-method=normal",
			"--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=" + strconv.Itoa(mariadbLogBytes),
		},
		User: &user, Directory: p.private,
	})
	return err
}

func (mariadb) socket(p place) string { return p.file("mariadb.sock") }

func (m mariadb) server(p place, o Options) (string, []string, error) {
	// Create the database of the load at the first start.
	first := p.file("first.sql")
	if err := os.WriteFile(first, []byte("CREATE DATABASE IF NOT EXISTS "+mariadbDatabase+";\n"), 0o644); err != nil {
		return "", nil, err
	}
	arguments := []string{
		"--no-defaults", "--datadir=" + p.data, "--socket=" + m.socket(p), "--pid-file=" + p.file("mariadb.pid"), "--tmpdir=" + p.private,
		"--skip-networking", "--skip-name-resolve", "--init-file=" + first,
		"--innodb-flush-method=O_DIRECT", "--innodb-flush-log-at-trx-commit=1",
		"--innodb-buffer-pool-size=" + strconv.Itoa(mariadbPoolBytes), "--innodb-log-file-size=" + strconv.Itoa(mariadbLogBytes),
	}
	if o.BinaryLog {
		arguments = append(arguments, "--log-bin=binlog", "--sync-binlog=1", "--server-id=1")
	}
	return "mariadbd", arguments, nil
}

// ready waits for the greeting: the socket listens shortly before the server
// works.
func (m mariadb) ready(_ context.Context, p place) (bool, error) {
	connection, err := net.Dial("unix", m.socket(p))
	if err != nil {
		return false, nil
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(greetingPatience)); err != nil {
		return false, err
	}
	// The greeting starts with three bytes of length, one of sequence, then the
	// protocol's version.
	var head [5]byte
	n, err := connection.Read(head[:])
	return err == nil && n == len(head) && head[4] == 10, nil
}

func (m mariadb) sysbench(ctx context.Context, p place, arguments ...string) (string, error) {
	return program.Run(ctx, program.Command{Path: "sysbench", Args: append([]string{
		"oltp_insert", "--db-driver=mysql", "--mysql-socket=" + m.socket(p), "--mysql-user=root", "--mysql-db=" + mariadbDatabase,
		"--tables=" + strconv.Itoa(mariadbTables), "--percentile=99",
	}, arguments...)})
}

func (m mariadb) fill(ctx context.Context, p place, rows int) error {
	_, err := m.sysbench(ctx, p, "--table-size="+strconv.Itoa(max(rows/mariadbTables, 1)), "prepare")
	return err
}

func (m mariadb) load(ctx context.Context, p place, l Load) (Result, error) {
	text, err := m.sysbench(ctx, p,
		"--threads="+strconv.Itoa(l.Clients), "--time="+strconv.Itoa(int(l.Time.Seconds())), "run")
	if err != nil {
		return Result{}, err
	}
	return parseSysbench(text)
}

func (mariadb) stop() syscall.Signal { return syscall.SIGTERM }
