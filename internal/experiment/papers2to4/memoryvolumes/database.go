package memoryvolumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/daybook-project/daybook/internal/database"
)

// The loads of the container.
const (
	// Writer appends and calls fsync, in one system call.
	Writer = "writer"
	// MariaDB is the server, with a binary log that it syncs for each transaction. Its clients are
	// outside the container.
	MariaDB = "mariadb"
)

// Loads lists all loads.
func Loads() []string { return []string{Writer, MariaDB} }

const (
	databaseClients = 4
	databaseRows    = 10_000
	// databaseWarmUp is how long the clients work before the first measurement.
	databaseWarmUp = time.Second
)

// startDatabase makes a database in the container's file system and starts the server in the container.
func (p *pair) startDatabase(ctx context.Context) error {
	// Its user is nobody.
	if err := errors.Join(os.Chmod(p.Home, 0o755), os.Chmod(filepath.Dir(p.a.Directory), 0o755), os.Chmod(p.a.Directory, 0o755)); err != nil {
		return err
	}
	o := database.Options{Engine: database.MariaDB, Directory: p.a.Directory, Cgroup: p.Group.Directory(p.a.Load), BinaryLog: true}
	if err := database.Create(ctx, o, databaseRows); err != nil {
		return err
	}
	server, err := database.Start(ctx, o)
	if err != nil {
		return err
	}
	p.server = server
	p.AtEnd(func(context.Context) error { return server.Stop() })
	_, err = p.queries(ctx, databaseWarmUp)
	return err
}

// queries runs the clients. What the result calls a sync is a transaction.
func (p *pair) queries(ctx context.Context, length time.Duration) (WriterResult, error) {
	r, err := p.server.Load(ctx, database.Load{Clients: databaseClients, Time: max(length.Round(time.Second), time.Second)})
	return WriterResult{Seconds: r.Seconds, Syncs: r.Transactions, SyncMeanSeconds: r.MeanSeconds, SyncP99Seconds: r.P99Seconds}, err
}
