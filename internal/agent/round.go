package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/daybook-project/daybook/internal/adopt"
	"github.com/daybook-project/daybook/internal/blockdev"
)

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
	reports, unplaced, errs := a.keepAll(ctx, placements)
	problems, failures = append(problems, unplaced...), append(failures, errs...)
	failures = append(failures, a.releaseOthers(ctx, reports)...)
	a.logShared(reports)
	a.forget(mounts)
	a.finish(reports, problems, failures)
}

// keepAll makes the journals of all placements have their places. unplaced says which file
// systems have no journal that can be placed.
func (a *Agent) keepAll(ctx context.Context, placements []Placement) (reports []VolumeReport, unplaced []string, failures []error) {
	for _, p := range placements {
		f, err := a.filesystem(p.Volume)
		if err == nil {
			err = a.keep(ctx, p, f)
			reports = append(reports, VolumeReport{Placement: p, Device: f.Name})
		}
		switch {
		case errors.Is(err, adopt.ErrUnsupported):
			unplaced = append(unplaced, fmt.Sprintf("%s: %v", p.For(), err))
		case err != nil && !errors.Is(err, adopt.ErrDeserted):
			failures = append(failures, fmt.Errorf("%s: %w", p.For(), err))
		}
	}
	return reports, unplaced, failures
}

// releaseOthers releases the journals of file systems that no pod uses any more.
func (a *Agent) releaseOthers(ctx context.Context, used []VolumeReport) (failures []error) {
	wanted := map[string]bool{}
	for _, v := range used {
		wanted[v.Device] = true
	}
	for _, name := range a.keeper.Kept() {
		if wanted[name] {
			continue
		}
		if err := a.keeper.Release(ctx, name); err != nil {
			failures = append(failures, err)
			continue
		}
		a.mu.Lock()
		a.report.Releases++
		a.mu.Unlock()
		a.log.Info("released the journal of a volume without a running pod", "device", name)
	}
	return failures
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

// sharedWeight is the largest weight of the pods that share a file system, as long as they are the
// same.
func (a *Agent) sharedWeight(p Placement) (uint64, error) {
	key := p.Dev.String()
	var cgroups []string
	for _, pod := range p.Pods {
		key += " " + pod.UID
		cgroups = append(cgroups, pod.Cgroup)
	}
	if a.weights[key] == nil {
		a.weights[key] = &adopt.SharedWeight{}
	}
	return a.weights[key].Get(p.Dev, cgroups, a.log)
}

// maxWeights bounds the remembered weights of shared file systems.
const maxWeights = 1000

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

// unusable is why a file system cannot be adopted, and when that was found.
type unusable struct {
	mount blockdev.Mount
	why   error
	found time.Time
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
