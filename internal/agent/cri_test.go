package agent

import (
	"debug/elf"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/blockdev/blockdevtest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// A pod must be able to end within this time, also while the agent is dead.
const podPatience = 3 * time.Minute

func TestTheJournalOfAPodsVolumeIsInThePodsCgroupUntilThePodEnds(t *testing.T) {
	r := newRig(t, false)
	d := r.disk("a")
	checkLife(t, r, d)
}

// checkLife is the life of a pod with an agent, on either version of cgroups.
func checkLife(t *testing.T, r *rig, d disk) {
	t.Helper()
	weighted := blockdevtest.SetScheduler(t, d.Disk, blockdev.BFQ) == nil
	r.config.Namespaces = []string{"te*"}
	p := r.start("db", "burstable", d, map[string]string{Annotation: "300"})
	a, stop := r.agent()
	r.await("the agent places the journal", func() bool { return p.has(d) })
	r.await("the agent reports it", func() bool {
		v := a.Report().Volumes
		return len(v) == 1 && v[0].Status.Placed
	})
	report := a.Report()
	v := report.Volumes[0]
	if v.Placement.For() != "team/db volume pvc-db" || v.Placement.Pods[0].QoS != Burstable || len(report.Problems) > 0 {
		t.Errorf("%s, %+v", v.Placement.For(), report)
	}
	if weighted {
		weights, err := r.tree.Weights(d.Dev, blockdev.BFQ)
		if err != nil {
			t.Fatal(err)
		}
		if now, err := weights.Get(p.cgroup); err != nil || now.Effective() != 300 || v.Status.Weight != 300 {
			t.Errorf("weight of %s: %+v, %v; reported %d", p.cgroup, now, err, v.Status.Weight)
		}
	}
	r.await("the journal's writes are charged", func() bool {
		v := a.Report().Volumes
		io, err := r.tree.IO(v[0].Status.JournalCgroup)
		parent, err2 := r.tree.IO(p.cgroup)
		return len(v) == 1 && (err == nil && io[d.Dev].WriteBytes > 0 || err2 == nil && parent[d.Dev].WriteBytes > 0)
	})
	want := `daybook_agent_volume_placed{device="` + d.Name + `",namespace="team",placement="pod",pod="db",volume="pvc-db"} 1`
	ofPod := `",namespace="team",pod="db",pod_uid="` + p.uid + `"} 1`
	for _, want := range []string{want, `daybook_agent_container_info{container="team/db/main",container_name="main` + ofPod, `daybook_agent_container_info{container="team/db",container_name="` + ofPod} {
		if text := metricsOf(t, a); !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %s", text, want)
		}
	}
	p.stop()
	p.remove(podPatience)
	r.await("the agent releases the journal", func() bool { return d.at() == "/" && len(a.Report().Volumes) == 0 })
	// A pod whose agent ends.
	other := r.start("next", "", d, nil)
	r.await("the agent places the journal of the next pod", func() bool { return other.has(d) })
	stop()
	r.wantReleased(d)
	other.stop()
	other.remove(podPatience)
}

func metricsOf(t *testing.T, a *Agent) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(a); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	return answer.Body.String()
}

// The kubelet gives a static pod the hash of its manifest as UID. The pod's directory, cgroup
// and sandbox have it, too; only its mirror in the API server has another one.
func TestTheJournalOfAStaticPodsVolumeIsInThePodsCgroup(t *testing.T) {
	r := newRig(t, false)
	d := r.disk("a")
	uid := strings.ReplaceAll(newUID(), "-", "")
	p := r.startAs(uid, "static", "burstable", d, map[string]string{"kubernetes.io/config.hash": uid, "kubernetes.io/config.source": "file"})
	a, stop := r.agent()
	r.awaitLong("the agent places the journal", func() bool { return p.has(d) })
	r.awaitLong("the agent reports it", func() bool { return len(a.Report().Volumes) == 1 })
	if v := a.Report().Volumes[0]; v.Placement.For() != "team/static volume pvc-static" || v.Placement.Pods[0].QoS != Burstable {
		t.Errorf("%s, %+v", v.Placement.For(), v.Placement.Pods)
	}
	if top, name, _ := a.Identify(p.cgroup); top != p.cgroup || name != "team/static" {
		t.Errorf("%s is %q of %s", p.cgroup, name, top)
	}
	p.stop()
	p.remove(podPatience)
	r.awaitLong("the agent releases the journal", func() bool { return d.at() == "/" })
	stop()
	r.wantReleased(d)
}

func TestAVolumeOfTwoPodsHasItsJournalInANeutralCgroup(t *testing.T) {
	r := newRig(t, false)
	d := r.disk("a")
	a := r.start("a", "", d, nil)
	log, err := os.Create(r.Path("agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	agent, stop := r.agentWith(func(a *Agent) { a.log = slog.New(slog.NewTextHandler(log, nil)) })
	r.await("the journal is in the first pod's cgroup", func() bool { return a.has(d) })
	b := r.start("b", "besteffort", d, nil)
	r.await("the journal is in a neutral cgroup", func() bool { return strings.HasPrefix(d.at(), "/daybook/adopt-") })
	r.await("the agent reports both", func() bool {
		v := agent.Report().Volumes
		return len(v) == 1 && len(v[0].Placement.Pods) == 2 && v[0].Placement.Neutral
	})
	a.stop()
	a.remove(podPatience)
	r.await("the journal is in the other pod's cgroup", func() bool { return b.has(d) })
	b.stop()
	b.remove(podPatience)
	r.await("the journal is released", func() bool { return d.at() == "/" })
	stop()
	const said = "several pods use the volume"
	text := readLog(t, log.Name())
	if n := strings.Count(text, said); n != 1 || !strings.Contains(text, "team/a") || !strings.Contains(text, "team/b") {
		t.Errorf("the log says %d times that %s:\n%s", n, said, text)
	}
}

// However the agent is killed, the pod can end: its guardian releases the journal. The next
// agent places it again.
func TestAPodEndsAlthoughTheAgentWasKilledAtAnyStep(t *testing.T) {
	r := newRig(t, false)
	d := r.disk("a")
	p := r.start("db", "", d, nil)
	steps := 0
	for ; ; steps++ {
		victim := r.victim(steps)
		ended := make(chan error, 1)
		go func() { ended <- victim.Wait() }()
		killed := false
		r.await("the agent is killed, or has placed the journal", func() bool {
			select {
			case <-ended:
				killed = true
				return true
			default:
				return p.has(d) && steps > 0
			}
		})
		if !killed {
			// It may be killed by a later step of the round that places the journal.
			// The first two numbers may be from before: the third is of a round that
			// ended since.
			last, changes := r.rounds(), 0
			r.await("the agent is killed, or has made more rounds", func() bool {
				select {
				case <-ended:
					killed = true
					return true
				default:
				}
				if n := r.rounds(); n != last {
					last = n
					changes++
				}
				return changes == 3
			})
		}
		if !killed {
			break
		}
		r.await("the guardian releases the journal", func() bool { return d.at() == "/" })
	}
	if steps < 4 {
		t.Errorf("only %d steps", steps)
	}
	t.Logf("killed at %d steps", steps)
	// The last victim runs: it is killed while the pod ends.
	last := r.victims[len(r.victims)-1]
	if err := last.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.stop()
	took := p.remove(podPatience)
	t.Logf("the pod's cgroup was removed %v after the pod's end", took.Round(time.Millisecond))
	r.await("the journal is released", func() bool { return d.at() == "/" })
	// With the guardian killed as well, the next agent releases it.
	again := r.start("again", "", d, nil)
	victim := r.victim(-1)
	r.await("the agent places the journal", func() bool { return again.has(d) })
	killWithChildren(t, victim)
	again.stop()
	if err := r.removePodCgroup(again, time.Second); err == nil {
		t.Error("the cgroup was removed with the thread inside")
	}
	_, stop := r.agent()
	again.remove(podPatience)
	stop()
	r.wantReleased(d)
}

// How many pods come and go, and how many in a long test.
const (
	fewPods  = 10
	manyPods = 200
)

func TestPodsComeAndGo(t *testing.T) { comeAndGo(t, newRig(t, false), fewPods) }

func comeAndGo(t *testing.T, r *rig, pods int) {
	t.Helper()
	d := r.disk("a")
	a, stop := r.agent()
	longest, begin := time.Duration(0), time.Now()
	for n := range pods {
		if n > 0 && n%20 == 0 { // an emulated guest takes long
			t.Logf("%d of %d pods in %v; the longest removal of a cgroup took %v", n, pods, time.Since(begin).Round(time.Second), longest.Round(time.Millisecond))
		}
		p := r.start("pod", []string{"", "burstable", "besteffort"}[n%3], d, nil)
		if n%2 == 0 { // else it ends at once
			r.awaitLong("the agent places the journal", func() bool { return p.has(d) })
		}
		p.stop()
		longest = max(longest, p.remove(podPatience))
		p.unmount()
	}
	t.Logf("%d pods; the longest removal of a cgroup took %v", pods, longest.Round(time.Millisecond))
	if failures := a.Report().Failures; failures > uint64(pods) {
		t.Errorf("%d failures, %q", failures, a.Report().Problems)
	}
	stop()
	r.wantReleased(d)
}

// The same on cgroup v2 with systemd: pods are slices, and the systemd driver makes their
// cgroups.
func TestGuestPodsComeAndGoOnCgroupV2WithSystemd(t *testing.T) {
	onCgroupV2WithSystemd(t, vmtest.Config{}, func(t *testing.T, r *rig) {
		pods := fewPods
		if vmtest.IsLong() {
			pods = manyPods
		}
		comeAndGo(t, r, pods)
	})
}

// The life of one of them, and two that share a disk under io.cost.
func TestGuestJournalsOfPodsOnCgroupV2WithSystemd(t *testing.T) {
	vmtest.Long(t)
	config := vmtest.Config{Disks: []string{costDisk}}
	if !vmtest.Inside() {
		config.Give = append(config.Give, needs.Built(t, "daybook")+":"+guestDaybook)
	}
	onCgroupV2WithSystemd(t, config, func(t *testing.T, r *rig) {
		checkLife(t, r, r.disk("a"))
		checkCost(t, r)
	})
}

// onCgroupV2WithSystemd runs a test in a guest in which a container runtime works with the
// systemd driver.
func onCgroupV2WithSystemd(t *testing.T, config vmtest.Config, test func(t *testing.T, r *rig)) {
	t.Helper()
	config.Modules, config.Memory, config.OneKernel, config.Fresh = "ext4,bfq,loop,overlay", "2G", true, true
	config.Give = append(config.Give, "containerd", "containerd-shim-runc-v2", "ctr", "runc", "/usr/bin/busybox:/opt/bin/busybox", "mke2fs")
	vmtest.Systemd(t, config, func(t *testing.T) {
		t.Setenv("PATH", os.Getenv("PATH")+":/opt/bin")
		r := newRig(t, true)
		if r.tree.Version() != cgroup.V2 {
			t.Fatalf("cgroup %s", r.tree.Version())
		}
		test(t, r)
	})
}

// Many pods in the cgroupfs driver, one after the other.
func TestManyPodsComeAndGo(t *testing.T) {
	vmtest.Long(t)
	comeAndGo(t, newRig(t, false), manyPods)
}

// The agent as in its DaemonSet: in a privileged container with the host's process IDs. When
// the runtime kills all processes of the container, the guardian is not among them.
func TestTheGuardianOfAnAgentInAContainerOutlivesTheContainer(t *testing.T) {
	binary, err := elf.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	static := !slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	_ = binary.Close()
	needs.That(t, static, "a static test binary (CGO_ENABLED=0, as make test sets)")
	r := newRig(t, false)
	d := r.disk("a")
	p := r.start("db", "burstable", d, nil)
	program, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(order{Config: r.config, KillAt: -1})
	if err != nil {
		t.Fatal(err)
	}
	uid := newUID()
	cgroup := candidates("/", "burstable", uid)[0]
	r.MakePodCgroup(cgroup)
	agent := r.cri.StartPod(containertest.PodSpec{
		Name: "agent", Namespace: "daybook", UID: uid, Cgroup: cgroup, Host: true,
		Mounts:  map[string]string{"/agent": program, r.Dir: r.Dir, "/dev": "/dev", "/sys": "/sys", "/sys/fs/cgroup": "/sys/fs/cgroup"},
		Command: []string{"/agent"}, Environment: map[string]string{victimVariable: string(text)},
	})
	r.await("the agent places the journal", func() bool { return p.has(d) })
	if err := agent.Kill(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p.stop()
	p.remove(podPatience)
	t.Logf("the pod's cgroup was removed %v after the agent's container was killed", time.Since(began).Round(time.Millisecond))
	r.await("the guardian releases the journal", func() bool { return d.at() == "/" })
	if err := agent.Stop(); err != nil {
		t.Error(err)
	}
	if err := containertest.RemovePodCgroup(cgroup, podPatience); err != nil {
		t.Errorf("the guardian is left in the agent's cgroup: %v", err)
	}
	r.wantReleased(d)
}
