package agent

import (
	"context"
	"errors"
	"time"
)

const (
	// listPause is the longest time between two lists of the container runtime, and between
	// two of the mounts: what no event reports is found then.
	listPause = 10 * time.Second
	// listAfterChange is how long the runtime is asked at each interval after a change. It
	// removes the cgroup of a sandbox shortly before it reports the sandbox's end.
	listAfterChange = 10 * time.Second
)

// listing is what the container runtime said last, and when it is asked again.
type listing struct {
	pause, afterChange time.Duration
	// pods are all pods, by UID, as the runtime reported them last.
	pods map[string]Pod
	// answered: the runtime was asked, and answered.
	answered bool
	// asked is when it was, covered when all cgroups were last looked for, changed when a
	// cgroup was last made or removed.
	asked, covered, changed time.Time
	warned                  bool
}

func newListing() listing { return listing{pause: listPause, afterChange: listAfterChange} }

// due says whether the runtime is to be asked. certain: what happens to the pods that matter
// is reported.
func (l *listing) due(now time.Time, certain bool) bool {
	return !l.answered || !certain || now.Sub(l.changed) < l.afterChange || now.Sub(l.asked) >= l.pause
}

// pods are the pods that have volumes, by UID. Without an answer of the runtime they are
// those whose cgroups exist, and the keeper looks for their processes. Names and annotations
// are then those of the last answer, so that a restart of the runtime changes no weight.
func (a *Agent) pods(ctx context.Context, volumes []Volume) (map[string]Pod, error) {
	now, l := a.now(), &a.listing
	if a.events.take() {
		l.changed = now
	}
	pods, failure := a.podsOfVolumes(ctx, volumes)
	certain := a.certain(volumes, pods)
	if !l.due(now, certain) {
		return pods, failure
	}
	// What is watched before the runtime is asked is not missed.
	if !certain || now.Sub(l.covered) >= l.pause {
		if err := a.events.cover(a.cgroups.roots); err != nil {
			a.warnBlind(err)
		}
		l.covered = now
	}
	sandboxes, containers, answered, err := a.runtime.ask(ctx)
	l.asked, l.answered = now, answered
	if answered {
		l.pods = podsOf(sandboxes)
		a.names.set(sandboxes, containers)
		a.mu.Lock()
		a.report.Listings++
		a.mu.Unlock()
	}
	pods, failure = a.podsOfVolumes(ctx, volumes)
	return pods, errors.Join(err, failure)
}

// podsOfVolumes are the pods of volumes, as far as they are known now.
func (a *Agent) podsOfVolumes(ctx context.Context, volumes []Volume) (map[string]Pod, error) {
	pods := map[string]Pod{}
	var failure error
	for _, v := range volumes {
		pod := a.listing.pods[v.PodUID]
		if pod.UID = v.PodUID; !a.listing.answered {
			pod.Ready, pod.Unknown = false, true
		}
		if pod.Cgroup == "" && (pod.Ready || pod.Unknown) {
			var err error
			if pod.QoS, pod.Cgroup, err = a.cgroups.locate(ctx, pod.UID, pod.Ready); err != nil {
				failure = errors.Join(failure, err)
			}
		}
		pods[v.PodUID] = pod
	}
	return pods, failure
}

// certain says whether the pods of all volumes are known and run, and events report when that
// changes. Otherwise a pod that starts or ends would be found later than at the next interval.
func (a *Agent) certain(volumes []Volume, pods map[string]Pod) bool {
	if !a.events.sees() || a.runtime.choose {
		return false
	}
	for _, v := range volumes {
		if pod := pods[v.PodUID]; !pod.Ready || !a.events.covers(pod.Cgroup) {
			return false
		}
	}
	return true
}

// warnBlind says once that events can be missed.
func (a *Agent) warnBlind(err error) {
	if !a.listing.warned {
		a.listing.warned = true
		a.log.Warn("cannot watch all cgroups of pods; the container runtime is asked at each interval", "why", err)
	}
}
