package dockervolume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/volume"
)

// Default paths of the daemon. Docker looks for plugins in that directory, and
// uses the name of the file as the name of the driver.
const (
	DefaultSocket    = "/run/docker/plugins/daybook.sock"
	DefaultTargetDir = "/run/daybook/volumes"
)

// Options configure [Run]. ParseBytes is required.
type Options struct {
	// Socket is DefaultSocket if it is empty; a socket that systemd passes
	// takes precedence.
	Socket string
	// TargetDir is the directory of the mount points; DefaultTargetDir if
	// empty.
	TargetDir string
	// SizeBytes is the size of volumes that are made without one; 0 rejects
	// them.
	SizeBytes uint64
	// ParseBytes parses the option size.
	ParseBytes ParseBytes
	// Log gets each call that changes something; nil discards them.
	Log *slog.Logger
}

const (
	// drainTime is how long calls may take after ctx ended.
	drainTime = 10 * time.Second
	// unmountPatience is how long an engine waits for an Unmount.
	unmountPatience = 5 * time.Second
)

// Run serves the volumes of a pool until ctx ends. Volumes in use stay
// attached. The error wraps volume.ErrBusy if another process serves the pool,
// or answers on the socket.
func Run(ctx context.Context, pool *volume.Pool, o Options) error {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if o.SizeBytes != 0 {
		if err := volume.CheckSize(o.SizeBytes); err != nil {
			return err
		}
	}
	only, err := lockPool(pool.Dir())
	if err != nil {
		return err
	}
	defer func() { _ = only.Close() }()
	listener, err := openSocket(o.Socket)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	// Placement continues while calls are served, which is longer than ctx.
	keeping, endKeeping := context.WithCancel(context.WithoutCancel(ctx))
	var kept sync.WaitGroup
	kept.Go(func() { keep(keeping, pool, log) })
	defer kept.Wait()
	defer endKeeping()
	return serve(ctx, pool, o, listener, log)
}

// lockFile is locked while a daemon serves the pool. It is never removed:
// otherwise two daemons could lock two files of the same name.
const lockFile = "docker.lock"

func lockPool(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock pool %s: %w", dir, err)
	}
	err = filelock.TryLock(file)
	if err == nil {
		return file, nil
	}
	_ = file.Close()
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("pool %s is %w: another daybook serve docker serves it; stop that one, or choose another pool and socket", dir, volume.ErrBusy)
	}
	return nil, fmt.Errorf("cannot lock pool %s: %w", dir, err)
}

// keepAgain is the pause before the next attempt while another daemon keeps the
// threads placed.
const keepAgain = 2 * time.Second

// keep keeps the jbd2 threads in their cgroups until ctx ends, except while
// another daemon (daybook volume keep) does.
func keep(ctx context.Context, pool *volume.Pool, log *slog.Logger) {
	for told := ""; ; {
		keeper, err := pool.Keeper()
		if err == nil {
			if err := keeper.Run(ctx); err != nil {
				log.Error("cannot keep the jbd2 threads in their cgroups", "why", err)
			}
			return
		}
		if text := err.Error(); text != told {
			log.Info("another daemon keeps the jbd2 threads in their cgroups", "why", err)
			told = text
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(keepAgain):
		}
	}
}

func openSocket(path string) (net.Listener, error) {
	listener, err := activated()
	if listener != nil || err != nil {
		return listener, err
	}
	if path == "" {
		path = DefaultSocket
	}
	return listen(path)
}

// serve repairs the pool and answers calls until ctx ends. Calls that come
// meanwhile wait in the socket.
func serve(ctx context.Context, pool *volume.Pool, o Options, listener net.Listener, log *slog.Logger) error {
	d, err := newDriver(pool, o, log)
	if err != nil {
		return err
	}
	if done, err := pool.Repair(ctx); err != nil {
		unrepaired := done.Unrepaired()
		if len(unrepaired) == 0 && !errors.Is(err, volume.ErrWorkLeft) {
			return err
		}
		log.Error("not all of the pool could be repaired; the other volumes are served", "why", err)
		for _, name := range slices.Sorted(maps.Keys(unrepaired)) {
			log.Warn("a volume is not repaired", "volume", name, "why", unrepaired[name])
		}
	}
	if err := d.recall(ctx); err != nil {
		return err
	}
	tidying, endTidying := context.WithCancel(ctx)
	var tidied sync.WaitGroup
	tidied.Go(func() { d.tidy(tidying) })
	defer tidied.Wait()
	defer endTidying()

	log.Info("serving volumes", "pool", pool.Dir(), "socket", listener.Addr().String(), "targets", d.targets)
	return d.answer(ctx, listener, drainTime)
}

// answer answers calls until ctx ends, and then those that have begun. After the drain time their
// contexts end.
func (d *driver) answer(ctx context.Context, listener net.Listener, drainTime time.Duration) error {
	defer d.saveUsers()
	var calls sync.WaitGroup
	handler := d.handler()
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			defer calls.Done()
			handler.ServeHTTP(w, r)
		}),
		// ReadTimeout would end the context of a long call; WriteTimeout would
		// limit it: see maxCallTime.
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("cannot continue serving volumes: %w", err)
	case <-ctx.Done():
	}
	d.log.Info("stopping; volumes in use stay attached")
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		// The contexts of the calls end with their connections, and what they
		// started is rolled back.
		_ = server.Close()
	}
	d.saveUsers() // a call that waits for a broken disk may never end
	calls.Wait()
	return nil
}

func (d *driver) saveUsers() {
	if err := d.users.save(); err != nil {
		d.log.Warn("volumes stay attached for users that have left", "why", err)
	}
}

func newDriver(pool *volume.Pool, o Options, log *slog.Logger) (*driver, error) {
	targets := o.TargetDir
	if targets == "" {
		targets = DefaultTargetDir
	}
	if err := os.MkdirAll(targets, 0o711); err != nil {
		return nil, fmt.Errorf("cannot make the directory of the mount points: %w", err)
	}
	targets, err := filepath.Abs(targets)
	if err == nil {
		targets, err = filepath.EvalSymlinks(targets)
	}
	if err != nil {
		return nil, fmt.Errorf("the directory of the mount points: %w", err)
	}
	users, err := openUsers(pool.Dir(), log)
	if err != nil {
		return nil, err
	}
	return &driver{
		pool: pool, users: users, targets: targets, sizeBytes: o.SizeBytes, parse: o.ParseBytes, log: log, patience: unmountPatience,
	}, nil
}
