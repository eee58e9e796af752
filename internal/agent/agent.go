package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
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
	// unusable are file systems without a journal that can be placed, looked at from time to
	// time: that reads all processes.
	unusable map[blockdev.Dev]unusable
	// weights are those of shared file systems without a configured weight, by their pods.
	weights map[string]uint64
	logged  map[string]string
	// shared says of what was logged that several pods use it.
	shared map[blockdev.Dev]string

	asker asker

	// undoing is when what a killed agent has left was last to be undone, and undoErr why not
	// all of it is.
	undoing time.Time
	undoErr error

	attributing atomic.Bool

	mu         sync.Mutex
	report     Report
	choices    Choices
	choicesErr error
}

// unusable is why a file system cannot be adopted, and when that was found.
type unusable struct {
	mount blockdev.Mount
	why   error
	found time.Time
}

// Report is what the last round found.
type Report struct {
	Time    time.Time
	Volumes []VolumeReport
	// Problems are the errors of the last round, unused annotations, and volumes without a
	// journal that can be placed.
	Problems []string
	// Rounds, Failures and Releases count since the start.
	Rounds, Failures, Releases uint64
	// Listings counts how often the container runtime listed its pods.
	Listings uint64
}

// VolumeReport is one file system of pods, and where its journal is.
type VolumeReport struct {
	Placement Placement
	Device    string // its name in /sys/class/block
	Status    adopt.Status

	kept *adopt.Kept // nil: it has no place
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
		config: config, log: log, tree: tree, cgroups: podCgroups{tree: tree, roots: []string{config.CgroupRoot}}, names: &Names{}, resolver: container.NewResolver(container.Config{}), made: time.Now(),
		found: map[blockdev.Dev]adopt.Filesystem{}, unusable: map[blockdev.Dev]unusable{}, weights: map[string]uint64{}, logged: map[string]string{},
		mounts: newMountTable(), listing: newListing(), now: time.Now,
	}
	a.kubeletDirs = []string{config.KubeletDir}
	if target, err := hostPath(config.KubeletDir); err == nil && target != config.KubeletDir {
		a.kubeletDirs = append(a.kubeletDirs, target)
		log.Info("the kubelet's directory is a link", "directory", config.KubeletDir, "target", target)
	}
	if config.APIServer {
		if a.asker.from, err = kube.InCluster(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		a.asker.wake = make(chan struct{}, 1)
	}
	a.runtime, err = newRuntime(config, log)
	return a, err
}

// Identify names the container of a cgroup, for the account: by the container runtime, and
// else by state files. A pod's own cgroup, in which its journals are, is a line of its own.
func (a *Agent) Identify(path string) (top, name, runtime string) {
	identity := a.resolver.Resolve(path)
	if named, ok := a.names.Of(identity); ok {
		return identity.Root, named.Name(), identity.RuntimeLabel()
	}
	return identity.Root, identity.Name, identity.RuntimeLabel()
}

// Names are the names of containers, by their cgroups.
func (a *Agent) Names() *Names { return a.names }

// Report is that of the last round, with the present status of its placements. To ask for
// them at each round would cost more than all else on a node with many volumes.
func (a *Agent) Report() Report {
	report := a.lastRound()
	report.Volumes = slices.Clone(report.Volumes)
	for i := range report.Volumes {
		if v := &report.Volumes[i]; v.kept != nil {
			v.Status = v.kept.Status()
		}
	}
	return report
}

// lastRound is the report of the last round without the status of its placements.
func (a *Agent) lastRound() Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.report
}

// lockFile is locked by the one agent of a host.
const lockFile = "agent.lock"

// Run keeps until ctx ends, and then undoes all. A guardian undoes all if this process is
// killed.
func (a *Agent) Run(ctx context.Context) (err error) {
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
	guardian, err := adopt.StartGuardian(a.config.StateDir, a.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guardian.Close()) }()
	a.keeper = adopt.NewKeeper(store, a.log)
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

// Round finds the volumes of pods, and places and releases journals. Errors are in the
// report; the next round tries again.
func (a *Agent) Round(ctx context.Context) {
	var failures []error
	if err := a.undoLeft(ctx); err != nil {
		failures = append(failures, err)
	}
	mounts, err := a.mounts.list(a.now())
	if err != nil {
		// Nothing is released: what is mounted is not known.
		a.finish(nil, nil, append(failures, err))
		return
	}
	volumes := volumesOf(mounts, a.kubeletDirs...)
	pods, err := a.pods(ctx, volumes)
	if err != nil {
		failures = append(failures, err)
	}
	known, err := a.current(volumes)
	if err != nil {
		failures = append(failures, err)
	}
	placements, problems := Plan(a.config, known, volumes, pods)
	wanted := map[string]bool{}
	var reports []VolumeReport
	for _, p := range placements {
		f, err := a.filesystem(p.Volume)
		if err == nil {
			wanted[f.Name] = true
			err = a.keep(ctx, p, f)
			reports = append(reports, VolumeReport{Placement: p, Device: f.Name})
		}
		switch {
		case errors.Is(err, adopt.ErrUnsupported):
			problems = append(problems, fmt.Sprintf("%s: %v", p.For(), err))
		case err != nil && !errors.Is(err, adopt.ErrDeserted):
			failures = append(failures, fmt.Errorf("%s: %w", p.For(), err))
		}
	}
	for _, name := range a.keeper.Kept() {
		if wanted[name] {
			continue
		}
		err := a.keeper.Release(ctx, name)
		failures = append(failures, err)
		if err == nil {
			a.mu.Lock()
			a.report.Releases++
			a.mu.Unlock()
			a.log.Info("released the journal of a volume without a running pod", "device", name)
		}
	}
	a.logShared(reports)
	a.forget(mounts)
	a.finish(reports, problems, failures)
}

// logShared logs once for each file system which pods share it: the cgroup of its journal then
// belongs to none of them.
func (a *Agent) logShared(reports []VolumeReport) {
	now := map[blockdev.Dev]string{}
	for _, r := range reports {
		p := r.Placement
		if !p.Shared() {
			continue
		}
		now[p.Dev] = p.For()
		if a.shared[p.Dev] != p.For() {
			a.log.Info("several pods use the volume: its journal is in a neutral cgroup, with the largest weight of them", "for", p.For(), "device", r.Device)
		}
	}
	a.shared = now
}

// keep makes the journal of one file system have its place.
func (a *Agent) keep(ctx context.Context, p Placement, f adopt.Filesystem) error {
	w := adopt.Wanted{Filesystem: f, Cgroup: p.Cgroup, Neutral: p.Neutral, Weight: p.Weight, For: p.For(), Running: p.Pods[0].Ready}
	if w.Weight == 0 && p.Neutral {
		weight, err := a.sharedWeight(p)
		if err != nil {
			return err
		}
		w.Weight = weight
	}
	err := a.keeper.Keep(ctx, w)
	if errors.Is(err, adopt.ErrReplaced) {
		delete(a.found, p.Dev)
		err = errors.Join(err, a.keeper.Release(ctx, f.Name))
	}
	return err
}

// sharedWeight is the largest weight of the pods that share a file system. It stays as long
// as they are the same, because control may correct their weights all the time.
func (a *Agent) sharedWeight(p Placement) (uint64, error) {
	key := p.Dev.String()
	var cgroups []string
	for _, pod := range p.Pods {
		key += " " + pod.UID
		cgroups = append(cgroups, pod.Cgroup)
	}
	if weight, known := a.weights[key]; known {
		return weight, nil
	}
	weight, err := adopt.LargestWeight(p.Dev, cgroups)
	if err == nil {
		a.weights[key] = weight
	}
	return weight, err
}

// filesystem is that of a volume, whose superblock is read once.
func (a *Agent) filesystem(v Volume) (adopt.Filesystem, error) {
	if f, known := a.found[v.Mount.Dev]; known {
		return f, nil
	}
	now := a.now()
	if u, known := a.unusable[v.Mount.Dev]; known && u.mount == v.Mount && now.Sub(u.found) < listPause {
		return adopt.Filesystem{}, u.why
	}
	f, err := adopt.Of(v.Mount)
	switch {
	case err == nil:
		a.found[v.Mount.Dev] = f
	case errors.Is(err, adopt.ErrUnsupported):
		a.unusable[v.Mount.Dev] = unusable{v.Mount, err, now}
	}
	return f, err
}

// forget forgets the devices that are not mounted any more, and old weights.
func (a *Agent) forget(mounts []blockdev.Mount) {
	mounted := map[blockdev.Dev]bool{}
	for _, mount := range mounts {
		mounted[mount.Dev] = true
	}
	maps.DeleteFunc(a.found, func(dev blockdev.Dev, _ adopt.Filesystem) bool { return !mounted[dev] })
	maps.DeleteFunc(a.unusable, func(dev blockdev.Dev, _ unusable) bool { return !mounted[dev] })
	if len(a.weights) > maxWeights {
		clear(a.weights)
	}
}

// maxWeights bounds the remembered weights of shared file systems.
const maxWeights = 1000

// finish makes the report, and logs each new problem once.
func (a *Agent) finish(reports []VolumeReport, problems []string, failures []error) {
	kept := map[string]*adopt.Kept{}
	for _, k := range a.keeper.Placements() {
		kept[k.Name()] = &k
	}
	for i := range reports {
		reports[i].kept = kept[reports[i].Device]
	}
	failed := uint64(0)
	for _, err := range failures {
		if err != nil {
			failed++
			problems = append(problems, err.Error())
		}
	}
	a.mu.Lock()
	r := &a.report
	r.Time, r.Volumes, r.Problems = time.Now(), reports, problems
	r.Rounds, r.Failures = r.Rounds+1, r.Failures+failed
	a.mu.Unlock()
	now := map[string]string{}
	for _, problem := range problems {
		now[problem] = ""
		if _, known := a.logged[problem]; !known {
			a.log.Warn("cannot do all of a round", "why", problem)
		}
	}
	a.logged = now
}
