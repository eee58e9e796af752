package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/adopt"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/victimtest"
)

func TestMain(m *testing.M) {
	adopt.GuardIfAsked()
	disksim.ServeIfAsked()
	victimtest.BeIfAsked(writersVariable, beWriters)
	victimtest.BeIfAsked(victimVariable, beVictim)
	os.Exit(m.Run())
}

// rig is a node without a kubelet: a container runtime, and a directory in which the test
// mounts volumes of pods as the kubelet and CSI drivers do.
type rig struct {
	*containertest.Workshop
	t       *testing.T
	tree    *cgroup.Tree
	cri     *containertest.CRI
	config  Config
	systemd bool
	root    string // the kubelet's --cgroup-root
	victims []*exec.Cmd
}

func newRig(t *testing.T, systemd bool) *rig {
	t.Helper()
	w := containertest.New(t)
	r := &rig{Workshop: w, t: t, systemd: systemd, root: "/", config: DefaultConfig()}
	var err error
	if r.tree, err = cgroup.Find(); err != nil {
		t.Fatal(err)
	}
	r.config.KubeletDir, r.config.StateDir = w.Path("kubelet"), w.Path("state")
	r.config.CRISocket, r.config.Interval = w.Path("cri.sock"), minInterval
	if err := errors.Join(os.MkdirAll(r.config.KubeletDir, 0o755), os.MkdirAll(r.config.StateDir, 0o755)); err != nil {
		t.Fatal(err)
	}
	r.cri = w.StartCRI(systemd)
	return r
}

// disk is a file system for volumes.
type disk struct {
	blockdev.Loop
	r *rig
}

func (r *rig) disk(name string) disk {
	r.t.Helper()
	needs.Tool(r.t, "mke2fs")
	file := r.Path("disk-" + name)
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 64<<20)); err != nil {
		r.t.Fatal(err)
	}
	loop, err := blockdev.Attach(file, blockdev.AttachOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := loop.Detach(context.Background()); err != nil {
			r.t.Error(err)
		}
	})
	if err := ext4.Make(r.t.Context(), loop.Node(), ext4.MakeOptions{}); err != nil {
		r.t.Fatal(err)
	}
	return disk{loop, r}
}

// pod is a pod with a volume.
type pod struct {
	r         *rig
	uid, name string
	cgroup    string
	mount     string
	running   *containertest.CRIPod
}

// start starts a pod with a volume on a disk, as the kubelet does.
func (r *rig) start(name, component string, d disk, annotations map[string]string) *pod {
	r.t.Helper()
	return r.startAs(newUID(), name, component, d, annotations)
}

// startAs starts a pod with a UID.
func (r *rig) startAs(uid, name, component string, d disk, annotations map[string]string) *pod {
	r.t.Helper()
	p := &pod{r: r, name: name, uid: uid}
	paths := candidates(r.root, component, p.uid)
	p.cgroup = paths[0]
	if r.systemd {
		p.cgroup = paths[1]
	}
	r.makePodCgroup(p)
	p.mount = filepath.Join(r.config.KubeletDir, "pods", p.uid, "volumes/kubernetes.io~csi", "pvc-"+name, "mount")
	if err := errors.Join(os.MkdirAll(p.mount, 0o755), ext4.Mount(d.Node(), p.mount, ext4.MountOptions{})); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.unmount)
	parent := p.cgroup
	if r.systemd {
		parent = path.Base(parent)
	}
	p.running = r.cri.StartPod(containertest.PodSpec{
		Name: name, Namespace: "team", UID: p.uid, Cgroup: parent, Annotations: annotations,
		Mounts: map[string]string{"/data": p.mount}, Script: writer,
	})
	return p
}

// writer writes with fsync.
const writer = `trap 'exit 0' TERM
while :; do
	echo x | /bin/busybox dd of=/data/new conv=fsync 2>/dev/null && /bin/busybox mv /data/new /data/written
	/bin/busybox sleep 0.05
done`

func (r *rig) makePodCgroup(p *pod) {
	r.t.Helper()
	if r.systemd {
		return // systemd makes the slice of the sandbox's scope
	}
	r.MakePodCgroup(p.cgroup)
	r.t.Cleanup(func() {
		if err := containertest.RemovePodCgroup(p.cgroup, podPatience); err != nil {
			r.t.Errorf("pod %s: its cgroup is left: %v", p.name, err)
		}
	})
}

func (p *pod) unmount() {
	err := ext4.Unmount(context.Background(), p.mount)
	if err != nil && !errors.Is(err, unix.EINVAL) {
		p.r.t.Errorf("pod %s: %v", p.name, err)
	}
}

// stop ends a pod as the kubelet does, but keeps its volume mounted: drivers keep a staged
// volume mounted, too.
func (p *pod) stop() {
	p.r.t.Helper()
	if err := p.running.Stop(); err != nil {
		p.r.t.Errorf("pod %s: %v", p.name, err)
	}
}

// remove removes the pod's cgroup as the kubelet does, within patience.
func (p *pod) remove(patience time.Duration) (took time.Duration) {
	p.r.t.Helper()
	began := time.Now()
	if err := p.r.removePodCgroup(p, patience); err != nil {
		p.r.t.Errorf("pod %s: its cgroup cannot be removed: %v", p.name, err)
	}
	return time.Since(began)
}

func (r *rig) removePodCgroup(p *pod, patience time.Duration) error {
	if r.systemd {
		out, err := exec.Command("systemctl", "stop", path.Base(p.cgroup)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return containertest.RemovePodCgroup(p.cgroup, patience)
}

// at is the cgroup of the journal's thread of a disk; "" if there is none.
func (d disk) at() string {
	d.r.t.Helper()
	journal, err := ext4.JournalOf(d.Dev)
	if err != nil {
		d.r.t.Fatal(err)
	}
	pid, err := ext4.JournalThread(journal.Name)
	if err != nil {
		return ""
	}
	at, err := d.r.tree.Of(pid)
	if err != nil {
		d.r.t.Fatal(err)
	}
	return at
}

// journalIn says whether a thread is in a child of a pod's cgroup.
func (p *pod) has(d disk) bool { return path.Dir(d.at()) == p.cgroup }

func newUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// agent starts an agent in this process; it ends with the test.
func (r *rig) agent() (a *Agent, stop func()) { return r.agentWith(func(*Agent) {}) }

// agentWith starts one that a test has changed.
func (r *rig) agentWith(change func(*Agent)) (a *Agent, stop func()) {
	r.t.Helper()
	a, err := New(r.config, slog.New(slog.DiscardHandler))
	if err != nil {
		r.t.Fatal(err)
	}
	change(a)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-ended; err != nil {
				r.t.Error(err)
			}
		}
	}
	r.t.Cleanup(stop)
	return a, stop
}

// jumpingClock is the time, and what a test adds to it.
type jumpingClock struct{ ahead atomic.Int64 }

func (c *jumpingClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *jumpingClock) jump(by time.Duration) { c.ahead.Add(int64(by)) }

func (r *rig) await(what string, holds func() bool) {
	r.t.Helper()
	r.Await(what, r.cri.Log, holds)
}

// victimVariable makes the test binary an agent that kills itself at a step.
const victimVariable = "DAYBOOK_AGENT_TEST_VICTIM"

type order struct {
	Config Config
	KillAt int    // below 0: it runs on
	Rounds string // the file to which it writes the number of its rounds; "": none
}

func beVictim(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	a, err := New(o.Config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	step := 0
	a.stopAt = func(string) {
		if step == o.KillAt {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		step++
	}
	go func() {
		for ; o.Rounds != ""; time.Sleep(20 * time.Millisecond) {
			_ = os.WriteFile(o.Rounds+".new", fmt.Append(nil, a.Report().Rounds), 0o600)
			_ = os.Rename(o.Rounds+".new", o.Rounds)
		}
	}()
	return a.Run(context.Background())
}

func (r *rig) victim(killAt int) *exec.Cmd {
	r.t.Helper()
	rounds := r.Path("rounds")
	text, err := json.Marshal(order{Config: r.config, KillAt: killAt, Rounds: rounds})
	if err := errors.Join(err, os.RemoveAll(rounds)); err != nil {
		r.t.Fatal(err)
	}
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), victimVariable+"="+string(text))
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.victims = append(r.victims, command)
	r.t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	return command
}

// rounds is how many the last victim has made, or fewer: it writes the number now and then.
func (r *rig) rounds() int {
	text, _ := os.ReadFile(r.Path("rounds"))
	n, _ := strconv.Atoi(string(text)) // 0 before the first
	return n
}

// killWithChildren kills an agent and its guardian.
func killWithChildren(t *testing.T, agent *exec.Cmd) {
	t.Helper()
	victimtest.Stop(t, agent.Process.Pid) // or it would start another guardian
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	children := 0
	for _, stat := range stats {
		text, _ := os.ReadFile(stat)
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(agent.Process.Pid) {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
			if err != nil {
				t.Fatal(err)
			}
			children++
			if err := unix.Kill(child, unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
	if children != 1 {
		t.Errorf("the agent has %d children, want its guardian", children)
	}
	_ = agent.Process.Kill()
	_ = agent.Wait()
}

// wantReleased reports what an agent has left.
func (r *rig) wantReleased(d disk) {
	r.t.Helper()
	if at := d.at(); at != "/" && at != "" {
		r.t.Errorf("the journal's thread is left in %s", at)
	}
	if names, err := adopt.Existing(r.config.StateDir).Names(); err != nil || len(names) > 0 {
		r.t.Errorf("records are left: %q, %v", names, err)
	}
}
