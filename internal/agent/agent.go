package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/daybook-project/daybook/internal/adopt"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/internal/kube"
)

// Agent keeps the journals of the volumes of this node's pods.
type Agent struct {
	config  Config
	log     *slog.Logger
	tree    *cgroup.Tree
	runtime runtime
	cgroups podCgroups
	store   adopt.Store
	keeper  *adopt.Keeper
	names   *Names
	// resolver knows the containers that are no pods'.
	resolver *container.Resolver
	made     time.Time
	// kubeletDirs are the kubelet's directory, and what it is on the host where it is a link.
	kubeletDirs []string

	mounts  mountTable
	listing listing
	// events are nil while nothing is watched.
	events *cgroupEvents
	// now is the time, also for tests.
	now func() time.Time

	// stopAt is called after each step of a placement, for tests; nil: no call.
	stopAt func(point string)
	// found are file systems by device, so that superblocks are read once.
	found map[blockdev.Dev]adopt.Filesystem
	// unusable are file systems without a journal that can be placed. They are looked at again
	// only from time to time, because each look reads all processes.
	unusable map[blockdev.Dev]unusable
	// weights are those of shared file systems without a configured weight, by their pods.
	weights map[string]*adopt.SharedWeight
	logged  map[string]string
	// shared says of what was logged that several pods use it.
	shared map[blockdev.Dev]string

	asker asker

	// undoing is the time of the last attempt to undo what a killed agent has left. undoErr is
	// its error.
	undoing time.Time
	undoErr error

	attributing atomic.Bool

	mu         sync.Mutex
	report     Report
	choices    Choices
	choicesErr error
}

// New checks the host, and returns an agent that places nothing yet.
func New(config Config, log *slog.Logger) (*Agent, error) {
	if err := check(config); err != nil {
		return nil, err
	}
	tree, err := cgroup.Find()
	if err != nil {
		return nil, err
	}
	a := &Agent{
		config:   config,
		log:      log,
		tree:     tree,
		cgroups:  podCgroups{tree: tree, roots: []string{config.CgroupRoot}},
		names:    &Names{},
		resolver: container.NewResolver(container.Config{}),
		made:     time.Now(),
		mounts:   newMountTable(),
		listing:  newListing(),
		now:      time.Now,
		found:    map[blockdev.Dev]adopt.Filesystem{},
		unusable: map[blockdev.Dev]unusable{},
		weights:  map[string]*adopt.SharedWeight{},
		logged:   map[string]string{},
	}
	a.kubeletDirs = []string{config.KubeletDir}
	if target, err := hostPath(config.KubeletDir); err == nil && target != config.KubeletDir {
		a.kubeletDirs = append(a.kubeletDirs, target)
		log.Info("the kubelet's directory is a link", "directory", config.KubeletDir, "target", target)
	}
	if config.APIServer {
		client, err := kube.InCluster()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		a.asker.from = remember(client)
		a.asker.wake = make(chan struct{}, 1)
	}
	a.runtime, err = newRuntime(config, log)
	return a, err
}

// Identify names the container of a cgroup, for the account. The container runtime knows the
// name; state files are the second choice. The cgroup of a pod itself, which has the journals
// of its volumes, gets a line of its own.
func (a *Agent) Identify(path string) (top, name, runtime string) {
	identity := a.resolver.Resolve(path)
	if named, ok := a.names.Of(identity); ok {
		return identity.Root, named.Name(), identity.RuntimeLabel()
	}
	return identity.Root, identity.Name, identity.RuntimeLabel()
}

// Names are the names of containers, by their cgroups.
func (a *Agent) Names() *Names { return a.names }

// lockFile is locked by the one agent of a host.
const lockFile = "agent.lock"

// Run keeps journals in their cgroups until ctx ends, and then undoes all. If this process is
// killed, a guardian undoes all.
func (a *Agent) Run(ctx context.Context) error {
	store, err := adopt.Open(a.config.StateDir)
	if err != nil {
		return err
	}
	lock, err := filelock.Take(filepath.Join(a.config.StateDir, lockFile))
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return fmt.Errorf("process %d is the agent of this host already: %w", held.PID, err)
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	a.store = store
	if err := a.undoLeft(ctx); err != nil {
		a.log.Warn("not all that a killed agent left could be undone; later rounds try again", "why", err)
	}
	return adopt.Guarded(a.config.StateDir, a.log, func() error { return a.rounds(ctx) })
}

// rounds is Run beside a guardian.
func (a *Agent) rounds(ctx context.Context) (err error) {
	a.keeper = adopt.NewKeeper(a.store, a.log)
	a.keeper.StopAt(a.stopAt)
	if a.asker.from != nil {
		// Before the first placement, so that no weight is set and corrected at once.
		a.askFirst(ctx)
		asking, stop := context.WithCancel(ctx)
		defer stop()
		go a.keepAsking(asking)
	}
	defer a.mounts.close()
	events, err := watchCgroups(a.tree, a.cgroups.roots)
	if err != nil {
		a.warnBlind(err)
	}
	a.mu.Lock()
	a.events = events
	a.mu.Unlock()
	defer func() { err = errors.Join(err, a.events.close()) }()
	ticker := time.NewTicker(a.config.Interval)
	defer ticker.Stop()
	for a.Round(ctx); a.await(ctx, ticker.C); a.Round(ctx) {
	}
	return a.keeper.Close(context.WithoutCancel(ctx))
}

// undoLeft undoes what a killed agent has left, from time to time until all of it is undone.
func (a *Agent) undoLeft(ctx context.Context) error {
	if !a.undoing.IsZero() && (a.undoErr == nil || a.now().Sub(a.undoing) < listPause) {
		return a.undoErr
	}
	a.undoing = a.now()
	outcomes, err := a.store.UndoAbandoned(ctx, false, a.log)
	for _, o := range outcomes {
		a.log.Info("undid what a killed agent left", "mountpoint", o.Mountpoint, "cgroup", o.Cgroup)
	}
	a.undoErr = err
	return err
}

// await waits for the next round. There is one at each interval, and one at once when cgroups
// change, but not more often than the container runtime may be asked. ok is false at the end.
func (a *Agent) await(ctx context.Context, tick <-chan time.Time) (ok bool) {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
			return true
		case <-a.events.woken():
			if a.now().Sub(a.listing.asked) >= a.config.Interval {
				return true
			}
		}
	}
}
