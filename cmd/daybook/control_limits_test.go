package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// readersOf is the number of outstanding requests of each job. A scheduler
// without weights gives most to the job with the least weight.
var readersOf = map[string]int{"a": 2, "b": 3, "c": 5}

// limitsRig is one simulated disk without weights, with deep readers.
func limitsRig(t *testing.T, scheduler string) *controlRig {
	t.Helper()
	r := newCgroups(t)
	r.makeDisk(t, 0, scheduler)
	for job, readers := range readersOf {
		for n := range readers {
			r.read(t, 0, job, n)
		}
	}
	return r
}

// recorded sums the last samples of a recording by job, and their seconds.
func (r *controlRig) recorded(t *testing.T, path string, samples int) (bytes map[string]float64, seconds float64, last account.Sample) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, last
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	bytes = map[string]float64{}
	for n := len(lines) - 1; n > 0 && samples > 0; n-- {
		var sample account.Sample
		if json.Unmarshal([]byte(lines[n]), &sample) != nil {
			continue // it is being written
		}
		if seconds == 0 {
			last = sample
		}
		for job := range jobWeights {
			c, _ := line(sample, r.disks[0].Device.Name, r.jobs+"/"+job)
			bytes[job] += float64(c.Bytes())
		}
		seconds += sample.IntervalSeconds
		samples--
	}
	if samples > 0 {
		return nil, 0, last
	}
	return bytes, seconds, last
}

// limits returns the limits of the jobs' cgroups on the disk.
func (r *controlRig) limits(t *testing.T) map[string]cgroup.Limit {
	t.Helper()
	limits := map[string]cgroup.Limit{}
	for job := range jobWeights {
		limit, err := r.tree.Limits(r.jobs+"/"+job, r.disks[0].Device.Dev)
		if err != nil {
			t.Fatal(err)
		}
		limits[job] = limit
	}
	return limits
}

// On a scheduler without weights, limits hold the shares of deep queues within
// 3 points. The bandwidth of an idle container is used by others. All limits
// are undone: after a kill -9 by restore, and after a normal end.
func TestLimitsHoldSharesOnTheRealKernel(t *testing.T) {
	r := limitsRig(t, "mq-deadline")
	recording := filepath.Join(r.dir, "recording")
	operators := cgroup.Limit{ReadBps: 900e6, WriteBps: 800e6, ReadIOPS: 70_000}
	if err := r.tree.SetLimit(r.jobs+"/c", r.disks[0].Device.Dev, operators); err != nil {
		t.Fatal(err)
	}
	found := r.limits(t)
	config := filepath.Join(r.dir, "control.yaml")
	text := fmt.Sprintf("devices: [%s]\nstate_dir: %s\ncontainers:\n", r.disks[0].Device.Name, filepath.Join(r.dir, "state"))
	for job, weight := range jobWeights {
		text += fmt.Sprintf("  - {match: %s/%s, weight: %d}\n", r.jobs, job, weight)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := output(t, "control", "--config", config, "--actuator", "weights", "--dry-run"); err == nil || !strings.Contains(err.Error()+out, "actuator: auto") {
		t.Errorf("without limits: %v, %s; want a hint to actuator: auto", err, out)
	}
	control := startDaybook(t, "control", "--config", config, "--record", recording)
	var full float64
	await(t, control, "50:30:20 within 3 points for 10 s", func() bool {
		bytes, seconds, last := r.recorded(t, recording, 20)
		if bytes == nil {
			return false
		}
		sum := bytes["a"] + bytes["b"] + bytes["c"]
		for job, weight := range jobWeights {
			if math.Abs(bytes[job]/sum-float64(weight)/1000) > 0.03 {
				return false
			}
		}
		full = sum / seconds
		c := last.Devices[0].Control
		return c != nil && c.Actuator == account.ActuatorLimits && !c.WeightsIgnored
	})
	t.Logf("by limits %.1f MB/s", full/1e6)
	for n, load := range r.loads[0] {
		if r.jobsOf[n] == "a" {
			if err := syscall.Kill(-load.Process.Pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
	}
	await(t, control, "the use of an idle container's bandwidth", func() bool {
		bytes, seconds, _ := r.recorded(t, recording, 4)
		return bytes != nil && bytes["a"] == 0 && (bytes["b"]+bytes["c"])/seconds > 0.9*full && math.Abs(bytes["b"]/(bytes["b"]+bytes["c"])-0.6) < 0.1
	})
	if now := r.limits(t); fmt.Sprint(now) == fmt.Sprint(found) {
		t.Errorf("the limits are unchanged: %+v", now)
	}
	if err := control.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = control.cmd.Wait() // it was killed
	if out, err := output(t, "restore", "--state-dir", filepath.Join(r.dir, "state")); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if now := r.limits(t); fmt.Sprint(now) != fmt.Sprint(found) {
		t.Errorf("after kill -9 and restore the limits are %+v; want %+v", now, found)
	}

	again := startDaybook(t, "control", "--config", config, "--record", recording)
	await(t, again, "limits again", func() bool { return fmt.Sprint(r.limits(t)) != fmt.Sprint(found) })
	again.end(t)
	if now := r.limits(t); fmt.Sprint(now) != fmt.Sprint(found) {
		t.Errorf("at the end the limits are %+v; want %+v", now, found)
	}
}

// heldWeights are weights that the scheduler ignores.
type heldWeights struct {
	control.WeightStore
	mutex sync.Mutex
	set   map[string]uint64
}

func (h *heldWeights) Get(cgroup string) (control.Setting, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return control.Setting{Default: 100, Device: h.set[cgroup]}, nil
}

func (h *heldWeights) Set(cgroup string, weight uint64) error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.set[cgroup] = weight
	return nil
}

func (h *heldWeights) Restore(cgroup string, setting control.Setting) error {
	return h.Set(cgroup, setting.Device)
}

// Daybook notices a scheduler that ignores weights from the requests that the
// containers keep outstanding and the bytes that they are charged. Limits then
// hold the shares.
func TestIgnoredWeightsAreNoticedOnTheRealKernel(t *testing.T) {
	vmtest.Long(t)
	r := limitsRig(t, "mq-deadline")
	device := r.disks[0].Device.Name
	disks, err := openControlled(control.Config{Devices: []string{device}, Actuator: control.ActuatorAuto})
	if err != nil {
		t.Fatal(err)
	}
	weights := &heldWeights{WeightStore: disks[0].Host.Weights, set: map[string]uint64{}}
	disks[0].Host.Weights, disks[0].Host.Unweighted = weights, false
	config := control.DefaultConfig()
	config.StateDir = filepath.Join(r.dir, "state")
	for job, weight := range jobWeights {
		config.Containers = append(config.Containers, control.Rule{Match: r.jobs + "/" + job, Weight: weight})
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	var promises livePromises
	var log bytes.Buffer
	var seconds float64 // within 3 points, by limits
	logger := slog.New(slog.NewTextHandler(&log, nil))
	err = control.Run(ctx, control.Options{
		Disks: disks, Config: config, Log: logger, OnIdeals: promises.set,
		OpenSource: func(devices []string, interval time.Duration) (account.Source, error) {
			return openSource(ctx, sourceOptions{Devices: devices, Promises: promises.of, Interval: interval, Estimator: "handles", Log: logger,
				Ideal: func(path, _ string) (uint64, bool) {
					weight := jobWeights[filepath.Base(path)]
					return weight, weight > 0
				}})
		},
		OnInterval: func(d control.Decision) {
			promised, _ := promises.of(device)
			held := promised.Control == account.Control{Actuator: account.ActuatorLimits, WeightsIgnored: true}
			for _, w := range d.Weights {
				held = held && math.Abs(w.Share-w.TargetShare) < 0.1
			}
			if seconds += d.Seconds; !held {
				seconds = 0
			}
			if seconds > 5 {
				stop()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if seconds <= 5 || strings.Count(log.String(), "has not followed its weights") != 1 {
		t.Errorf("limits held the shares for %.1f s; the log:\n%s", seconds, log.String())
	}
	for job, limit := range r.limits(t) {
		if limit != (cgroup.Limit{}) {
			t.Errorf("at the end %s has the limit %+v", job, limit)
		}
	}
}
