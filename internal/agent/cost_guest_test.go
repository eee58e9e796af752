package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/systemd"
	"github.com/daybook-project/daybook/vm/vmtest"
)

const (
	// costDiskRate is what io.cost takes the disk for. The disk is faster: where it is the
	// bottleneck, requests wait behind io.cost, and weights do not matter.
	costDiskRate = 8 << 20
	// costPartBytes holds the files of the writers.
	costPartBytes = 256 << 20
	// costCountedBytes are written before a share is read: shares are of bytes, and no
	// time is measured.
	costCountedBytes = 160 << 20
	// costWindows are measured under control, each of costCountedBytes, one after the other.
	costWindows  = 6
	costPatience = 10 * time.Minute
	// costShareOff is far less than what separates 70 % from the 50 % of equal weights.
	costShareOff = 0.1
	// costControlledOff is the goal of control under io.cost. It is checked over all windows
	// together: io.cost takes metadata off the account of a cgroup later, and control repays
	// later what a window had too much (docs/kubernetes.md has what single windows had).
	costControlledOff = 0.015
)

// costDisk is the disk of [checkCost], as an option of the guest.
const costDisk = "600M"

// sharedByCost is a disk under io.cost, with a partition for each of two volumes.
type sharedByCost struct {
	blockdev.Disk
	parts []blockdev.Partition
}

func newCostDisk(t *testing.T, tree *cgroup.Tree, node string) sharedByCost {
	t.Helper()
	whole, err := blockdev.Lookup(node)
	if err != nil {
		t.Fatal(err)
	}
	if err := whole.SetScheduler(blockdev.NoScheduler); err != nil {
		t.Fatal(err)
	}
	f := fixture.Disk{Device: whole}
	model, qos := fixture.GivenDisk{Divider: fixture.IOCost, BytesPerSecond: costDiskRate}.Cost()
	if err := f.EnableCost(tree, model, qos); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(tree.Root()+"/io.cost.qos", []byte(whole.Dev.String()+" enable=0\n"), 0); err != nil {
			t.Error(err)
		}
	})
	parts, err := blockdev.AddPartitions(whole, 2, costPartBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := blockdev.RemovePartitions(whole, 2); err != nil {
			t.Error(err)
		}
	})
	return sharedByCost{whole, parts}
}

// written is what two pods, and all on the disk, have written.
type written struct {
	pods [2]uint64
	disk uint64
}

func (c sharedByCost) written(t *testing.T, tree *cgroup.Tree, pods [2]string) (w written) {
	t.Helper()
	for n, at := range pods {
		io, err := tree.IO(at)
		if err != nil {
			t.Fatal(err)
		}
		w.pods[n] = io[c.Dev].WriteBytes
	}
	w.disk = bytesOf(t, c.parts[0]) + bytesOf(t, c.parts[1])
	return w
}

// after waits until so much is written.
func (c sharedByCost) after(t *testing.T, tree *cgroup.Tree, pods [2]string, least uint64) (now written) {
	t.Helper()
	begin := c.written(t, tree, pods)
	for deadline := time.Now().Add(costPatience); now.disk < begin.disk+least; time.Sleep(200 * time.Millisecond) {
		if now = c.written(t, tree, pods); time.Now().After(deadline) {
			t.Fatalf("both wrote %d bytes within %v", now.disk-begin.disk, costPatience)
		}
	}
	return now
}

// share is the part of the first pod, of databaseWeight beside noiseWeight, in the bytes of both
// since then. The writers of both never stop.
func (w written) share(t *testing.T, then written) float64 {
	t.Helper()
	first, second := float64(w.pods[0]-then.pods[0]), float64(w.pods[1]-then.pods[1])
	share, charged := first/(first+second), (first+second)/float64(w.disk-then.disk)
	t.Logf("the pod of weight %d has %.1f %% of %.0f MiB; %.1f %% of the disk's bytes are charged to the two pods", databaseWeight, 100*share, (first+second)/(1<<20), 100*charged)
	if charged < 0.9 || charged > 1.1 {
		t.Errorf("%.1f %% of the disk's bytes are charged to the pods; want all", 100*charged)
	}
	return share
}

func wantShare(t *testing.T, share, off float64) {
	t.Helper()
	if share < target-off || share > target+off {
		t.Errorf("its share is %+.1f points off; want at most %.1f", 100*(share-target), 100*off)
	}
}

// checkCost checks pods that systemd made the cgroups of, on a disk that io.cost divides: the
// agent sets their weights as properties of their slices, and they have their shares, the
// journals included. Then the same with an agent that controls the disk.
func checkCost(t *testing.T, r *rig) {
	t.Helper()
	c := newCostDisk(t, r.tree, vmtest.Device(t, "disk0"))
	r.config.Namespaces = []string{"team"}
	a, stop := r.agent()
	type sharer struct {
		*pod
		disk
		weight uint64
	}
	var sharers []sharer
	for n, weight := range []string{strconv.Itoa(databaseWeight), strconv.Itoa(noiseWeight)} {
		d := disk{blockdev.Loop{Disk: blockdev.Disk{Name: filepath.Base(c.parts[n].Node), Dev: c.parts[n].Dev}}, r}
		if err := ext4.Make(t.Context(), d.Node(), ext4.MakeOptions{}); err != nil {
			t.Fatal(err)
		}
		value, err := parseWeight(weight)
		if err != nil {
			t.Fatal(err)
		}
		sharers = append(sharers, sharer{r.startWriters("cost-"+weight, d, weight), d, value})
	}
	for _, s := range sharers {
		r.awaitLong("the journal of "+s.name+" is placed", func() bool { return s.has(s.disk) })
	}
	weights, err := r.tree.Weights(c.Dev, blockdev.NoScheduler)
	if err != nil || weights.File() != "io.weight" {
		t.Fatalf("%v; want weights of io.cost", err)
	}
	var units systemd.Manager
	check := func(when string) {
		t.Helper()
		for _, s := range sharers {
			r.awaitLong(when+": the weight of "+s.name, func() bool {
				now, err := weights.Get(s.cgroup)
				return err == nil && now.Effective() == s.weight
			})
			unit, err := units.Unit(s.cgroup)
			own, err2 := units.DeviceWeights(unit)
			if err := errors.Join(err, err2); err != nil || unit == "" || len(own) != 1 || own[0].Weight != s.weight {
				t.Errorf("%s: %s: the unit %q has the weights %+v, %v; want %d", when, s.cgroup, unit, own, err, s.weight)
			}
		}
	}
	check("placed")
	if out, err := exec.Command("systemctl", "daemon-reload").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	check("after daemon-reload")
	both := [2]string{sharers[0].cgroup, sharers[1].cgroup}
	begin := c.after(t, r.tree, both, costCountedBytes/4) // the files are as large as they get
	wantShare(t, c.after(t, r.tree, both, costCountedBytes).share(t, begin), costShareOff)
	for _, v := range a.Report().Volumes {
		if !v.Status.Placed || v.Status.JournalWriteBytes == 0 {
			t.Errorf("%s: %+v; want bytes of its journal", v.Placement.For(), v.Status)
		}
	}
	stop()
	controlled := r.startControlled(t, c)
	for _, s := range sharers {
		r.awaitLong("the agent with control places the journal of "+s.name, func() bool { return s.has(s.disk) })
	}
	state := filepath.Join(r.config.StateDir, "control-"+c.Name+".json")
	r.awaitLong("the agent controls the disk", func() bool {
		_, err := os.Stat(state)
		return err == nil
	})
	begin = c.after(t, r.tree, both, costCountedBytes) // control finds the weights
	now := begin
	for range costWindows {
		then := now
		now = c.after(t, r.tree, both, costCountedBytes)
		now.share(t, then)
	}
	t.Log("all windows under control together:")
	wantShare(t, now.share(t, begin), costControlledOff)
	if text := readLog(t, controlled.Log); strings.Contains(text, "level=ERROR") || strings.Contains(text, "restored") {
		t.Errorf("control did not go on:\n%s", text)
	}
	for _, s := range sharers {
		s.stop()
		s.pod.remove(podPatience)
		r.awaitLong("the journal of "+s.name+" is released", func() bool { return s.at() == "/" })
		s.unmount()
	}
}

// guestDaybook is the program in the guest.
const guestDaybook = "/usr/bin/daybook"

// startControlled starts the agent with control of the disk.
func (r *rig) startControlled(t *testing.T, c sharedByCost) *containertest.Daemon {
	t.Helper()
	text := fmt.Sprintf("kubelet_dir: %s\nstate_dir: %s\ncri_socket: %s\nmetrics: \"\"\nnamespaces: [team]\ncontrol: {state_dir: %s, devices: [%s], containers: [{match: team/cost-%d, weight: %d}, {match: team/cost-%d, weight: %d}]}\n",
		r.config.KubeletDir, r.config.StateDir, r.config.CRISocket, r.config.StateDir, c.Name, databaseWeight, databaseWeight, noiseWeight, noiseWeight)
	file := r.Path("agent.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := r.Spawn(exec.Command(guestDaybook, "agent", "--config", file))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(readLog(t, agent.Log))
		}
	})
	return agent
}

func readLog(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// startWriters starts a pod whose writers always have a request for the disk.
func (r *rig) startWriters(name string, d disk, weight string) *pod {
	r.t.Helper()
	p := &pod{r: r, name: name, uid: newUID()}
	p.cgroup = candidates(r.root, "", p.uid)[1]
	p.mount = filepath.Join(r.config.KubeletDir, "pods", p.uid, "volumes/kubernetes.io~csi", "pvc-"+name, "mount")
	if err := errors.Join(os.MkdirAll(p.mount, 0o755), ext4.Mount(d.Node(), p.mount, ext4.MountOptions{})); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.unmount)
	program, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	p.running = r.cri.StartPod(containertest.PodSpec{
		Name: name, Namespace: "team", UID: p.uid, Cgroup: filepath.Base(p.cgroup), Annotations: map[string]string{Annotation: weight},
		Mounts:  map[string]string{"/data": p.mount, "/writers": program},
		Command: []string{"/writers"}, Environment: map[string]string{writersVariable: directWriters + "/data"},
	})
	return p
}

// awaitLong waits for what an emulated processor takes long for.
func (r *rig) awaitLong(what string, holds func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), costPatience)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(r.cri.Log)
			r.t.Fatalf("%s: not within %v\n%s", what, costPatience, strings.ToValidUTF8(string(log[max(0, len(log)-4000):]), "?"))
		case <-time.After(200 * time.Millisecond):
		}
	}
}
