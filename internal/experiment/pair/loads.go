package pair

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/daybook-project/daybook/internal/database"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/fio"
)

// The loads of container A.
const (
	Fio        = "fio"
	MariaDB    = string(database.MariaDB)
	PostgreSQL = string(database.PostgreSQL)
	// SmallWriters are some writers that append a little and sync.
	SmallWriters = "small-writers"
)

// What the loads do.
const (
	// FioBlockBytes is the size of a write, through the page cache.
	FioBlockBytes = 1 << 20
	// FioWriters is the number of writers of A, and of its neighbour, if A is fio.
	// With fewer, a queue may be empty, and then weights have no effect. The
	// neighbour of a database has NeighbourWriters.
	FioWriters       = 16
	NeighbourWriters = 2
	// SmallCount is the number of small writers, SmallBlockBytes the size of a write.
	SmallCount      = 4
	SmallBlockBytes = 16 << 10
	// fioSpaceBytes is the total size of the writers' files. They fit into a
	// container's file system, and a writer that syncs rewrites its file at most
	// once in a phase.
	fioSpaceBytes = 768 << 20
	// neighbourSeconds is longer than any phase. The neighbour is stopped before.
	neighbourSeconds = 600
	// DatabaseClients is the number of clients of a database.
	DatabaseClients = 8
	databaseRows    = 100_000
	// starvedPatience is the maximum wait for A's last sync after the end of the
	// phase, while the neighbour still writes. On a shared ext4 this sync may wait
	// until the neighbour stops rewriting its files.
	starvedPatience = 10 * time.Second
	// warmUpLoads is how long the loads run before the measurement.
	warmUpLoads = 3 * time.Second
	// warmUpControl is four intervals of the daemon. It needs them to reach the
	// configured shares.
	warmUpControl = 20 * time.Second
)

// warmUp is how long the loads of a pair run before the measurement.
func (s *pair) warmUp() time.Duration {
	if s.conditions.Arrangement.Controlled() {
		return warmUpControl
	}
	return warmUpLoads
}

// subject is A's load in all phases of a pair: fio, or a database server with its
// clients.
type subject struct {
	pair   *pair
	load   string
	server *database.Server // nil: fio
}

// subject prepares A's load.
func (s *pair) subject(ctx context.Context, load string) (*subject, error) {
	if load == Fio || load == SmallWriters {
		return &subject{pair: s, load: load}, nil
	}
	o := database.Options{
		Engine: database.Engine(load), Directory: s.a.Directory, Cgroup: s.Group.Directory(s.a.Load), BinaryLog: true,
	}
	if err := database.Create(ctx, o, databaseRows); err != nil {
		return nil, err
	}
	server, err := database.Start(ctx, o)
	return &subject{pair: s, load: load, server: server}, err
}

func (u *subject) close() error {
	if u.server == nil {
		return nil
	}
	return errors.Join(u.pair.setInstant(true), u.server.Stop())
}

// outcome is the result of A's load in a phase.
type outcome struct {
	rate     float64
	database *database.Result
	err      error
}

// run runs the load for this time after the warm-up.
func (u *subject) run(ctx context.Context, seconds int) outcome {
	if u.server == nil {
		directory := filepath.Join(u.pair.a.Directory, "fio")
		job, err := u.pair.writers(directory, fio.HighFsync, FioWriters, time.Duration(seconds)*time.Second)
		if err != nil {
			return outcome{err: err}
		}
		if u.load == SmallWriters {
			job.Writers, job.BlockBytes, job.FileBytes = SmallCount, SmallBlockBytes, fioSpaceBytes/SmallCount
		}
		defer os.RemoveAll(directory)
		run, err := fio.Start(job, u.pair.Group.Directory(u.pair.a.Load))
		if err != nil {
			return outcome{err: err}
		}
		result, err := run.Wait(ctx)
		return outcome{rate: result.BytesPerSecond(), err: err}
	}
	// The clients have no warm-up of their own.
	if err := fixture.Sleep(ctx, u.pair.warmUp()); err != nil {
		return outcome{err: err}
	}
	result, err := u.server.Load(ctx, database.Load{Clients: DatabaseClients, Time: time.Duration(seconds) * time.Second})
	return outcome{rate: result.PerSecond(), database: &result, err: err}
}

// besideWriters is the number of the neighbour's writers.
func (u *subject) besideWriters() int {
	if u.load == Fio {
		return FioWriters
	}
	return NeighbourWriters
}

// starved waits for a load that ends only after its neighbour, and counts only the
// work within the phase. For fio these are the syncs of the phase, because fio may
// still be in its warm-up. The clients of a database start no transaction after their
// time, so inTime needs only their total.
func (u *subject) starved(cancel func(), done <-chan outcome, phase *Phase, seconds int) outcome {
	if u.server == nil {
		cancel()
		<-done
		block := uint64(FioBlockBytes)
		if u.load == SmallWriters {
			block = SmallBlockBytes
		}
		return outcome{rate: statistics.Ratio(float64(phase.SyncA.Calls*block), phase.Seconds)}
	}
	result := <-done
	if result.err == nil {
		result.rate = inTime(*result.database, seconds)
	}
	return result
}

// inTime returns the rate of a load that took longer than its time. It leaves out the
// last transaction of each client, which ended late.
func inTime(r database.Result, seconds int) float64 {
	return float64(r.Transactions-min(r.Transactions, DatabaseClients)) / float64(seconds)
}

// startNeighbour starts B's load. The function that it returns removes B's limit and
// stops the load.
func (s *pair) startNeighbour(neighbour fio.Neighbour, count int) (stop func() (fio.Result, error), err error) {
	if neighbour == Alone {
		return func() (fio.Result, error) { return fio.Result{}, nil }, nil
	}
	job, err := s.writers(fioDirectory(s.b), neighbour, count, neighbourSeconds*time.Second)
	if err != nil {
		return nil, err
	}
	free := func() error { return nil }
	if neighbour == Limited {
		if free, err = s.limit(s.b); err != nil {
			return nil, err
		}
	}
	run, err := fio.Start(job, s.Group.Directory(s.b.Load))
	if err != nil {
		return nil, errors.Join(err, free())
	}
	return func() (fio.Result, error) {
		freed := free() // first, because the limit would delay the last sync
		result, err := run.Stop()
		return result, errors.Join(freed, err)
	}, nil
}

func fioDirectory(t *fixture.Container) string { return filepath.Join(t.Directory, "fio") }

// clear removes the neighbour's files.
func (s *pair) clear() error { return os.RemoveAll(fioDirectory(s.b)) }

// writers returns the fio job of a neighbour in a new directory.
func (s *pair) writers(directory string, neighbour fio.Neighbour, count int, length time.Duration) (fio.Job, error) {
	every, err := syncs(neighbour).FsyncEvery()
	if err != nil {
		return fio.Job{}, err
	}
	if err := os.Mkdir(directory, 0o755); err != nil {
		return fio.Job{}, err
	}
	return fio.Job{
		Directory: directory, Writers: count, BlockBytes: FioBlockBytes, FsyncEvery: every,
		FileBytes: fioSpaceBytes / int64(count), WarmUp: s.warmUp(), Time: length,
	}, nil
}
