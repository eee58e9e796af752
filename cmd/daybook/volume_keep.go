package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/volume"
)

// keepLookInterval is how often the daemon looks for newly noted pools.
const keepLookInterval = 2 * time.Second

func newVolumeKeepCommand(v *volumeFlags) *cobra.Command {
	var logJSON bool
	cmd := &cobra.Command{
		Use:   "keep",
		Short: "Keep the jbd2 threads of attached volumes in their cgroups, until stopped",
		Long: `Keep is a daemon. At its start it repairs, as "daybook volume repair" does. Then it
returns a jbd2 thread to its cgroup if the cgroup was removed and created again, or
somebody moved the thread. It moves a thread out of the cgroup of a container that has
ended (--placement container), because that cgroup could not be removed otherwise. If a
volume was left frozen, keep thaws it within a second.

Without --pool and DAYBOOK_POOL it keeps all known pools, also those that become known
later. One daemon keeps a pool; keep leaves alone a pool that another daemon keeps, such
as the Docker volume plugin. Ctrl-C, SIGTERM or SIGHUP ends it: volumes stay attached,
and their threads stay in their cgroups.

The unit daybook-volumes.service runs it. Volumes work without it.`,
		Example: `  daybook volume keep
  daybook volume keep --pool /srv/pool --log-json`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options := &slog.HandlerOptions{Level: slog.LevelInfo}
			if v.verbose {
				options.Level = slog.LevelDebug
			}
			if logJSON {
				v.log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), options))
			} else {
				v.log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), options))
			}
			return v.keep(cmd)
		},
	}
	cmd.Flags().BoolVar(&logJSON, "log-json", false, "log as JSON lines")
	return cmd
}

// keep keeps the named pool, or all known pools.
func (v *volumeFlags) keep(cmd *cobra.Command) error {
	pools, err := v.all(cmd)
	if v.named() != "" {
		if err != nil {
			return err
		}
		keeper, err := startKeeping(cmd.Context(), pools[0], v.log)
		if err != nil {
			return explainVolume(err)
		}
		return keeper.Run(cmd.Context())
	}
	var unsupported unsupportedError
	var usage usageError
	if errors.As(err, &unsupported) || errors.As(err, &usage) {
		return err
	}
	kept := keptPools{log: v.log, keepers: map[string]bool{}, logged: map[string]string{}}
	return kept.run(cmd.Context(), func() ([]*volume.Pool, error) {
		return v.registry().Pools(cmd.Context(), v.options(cmd))
	})
}

// startKeeping makes this process the keeper of a pool and repairs the pool.
func startKeeping(ctx context.Context, pool *volume.Pool, log *slog.Logger) (*volume.Keeper, error) {
	keeper, err := pool.Keeper()
	if err != nil {
		return nil, err
	}
	done, err := pool.Repair(ctx)
	if done.Work > 0 {
		log.Info("removed unfinished creations and deletions", "pool", pool.Dir(), "count", done.Work)
	}
	unrepaired := done.Unrepaired()
	for _, name := range slices.Sorted(maps.Keys(unrepaired)) {
		log.Warn("a volume is not repaired", "pool", pool.Dir(), "volume", name, "why", unrepaired[name])
	}
	// Unreadable volumes, and work that cannot be removed now, do not prevent keeping the
	// others.
	left := errors.Is(err, volume.ErrWorkLeft)
	if left {
		log.Warn("not all of the pool could be repaired", "pool", pool.Dir(), "why", err)
	}
	if err != nil && len(unrepaired) == 0 && !left {
		return nil, errors.Join(err, keeper.Close())
	}
	log.Info("keeping the jbd2 threads in their cgroups", "pool", pool.Dir())
	return keeper, nil
}

// keptPools are the pools that the daemon keeps.
type keptPools struct {
	log     *slog.Logger
	keepers map[string]bool   // by directory
	logged  map[string]string // errors, by directory
	running sync.WaitGroup
}

func (h *keptPools) run(ctx context.Context, known func() ([]*volume.Pool, error)) error {
	ticker := time.NewTicker(keepLookInterval)
	defer ticker.Stop()
	defer h.running.Wait()
	for {
		pools, err := known()
		h.logOnce("", err)
		for _, pool := range pools {
			if !h.keepers[pool.Dir()] {
				h.logOnce(pool.Dir(), h.start(ctx, pool))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (h *keptPools) start(ctx context.Context, pool *volume.Pool) error {
	keeper, err := startKeeping(ctx, pool, h.log)
	if err != nil {
		return err
	}
	h.keepers[pool.Dir()] = true
	h.running.Add(1)
	go func() {
		defer h.running.Done()
		if err := keeper.Run(ctx); err != nil {
			h.log.Error("the keeping of a pool ended with an error", "pool", pool.Dir(), "why", err)
		}
	}()
	return nil
}

// logOnce logs each error once, because the daemon retries for ever.
func (h *keptPools) logOnce(dir string, err error) {
	text := ""
	if err != nil {
		text = fmt.Sprint(err)
	}
	if text != "" && text != h.logged[dir] {
		h.log.Warn("cannot keep a pool", "pool", dir, "why", text)
	}
	h.logged[dir] = text
}
