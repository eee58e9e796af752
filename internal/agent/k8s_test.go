package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/blockdev/blockdevtest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/experiment/daemon/node"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/kubetest"
)

// Variables of the tests on a real node; "make k8s-test" sets them.
const (
	// nodeImageVariable is the archive of the agent's image, as packaging/build makes it.
	nodeImageVariable = "DAYBOOK_KUBERNETES_IMAGE"
	// nodeManifestVariable is the file of what the chart renders.
	nodeManifestVariable = "DAYBOOK_KUBERNETES_MANIFEST"
	// deletionsVariable is how many pods are deleted.
	deletionsVariable = "DAYBOOK_KUBERNETES_DELETIONS"
)

// The agent on a node with a real kubelet and control plane, deployed by what the
// chart renders.
func TestTheAgentOnARealNode(t *testing.T) {
	kubetest.Programs(t)
	kubetest.Enter(t, func(t *testing.T, w *containertest.Workshop) { checkNode(t, w) })
}

// site is a node with volumes.
type site struct {
	*kubetest.Node
	t    *testing.T
	tree *cgroup.Tree
	// config is the agent's configuration as the chart renders it, for this node.
	config string
}

// nodeDisk is a disk without a file system: the kubelet makes it.
func nodeDisk(t *testing.T, w *containertest.Workshop, name string) blockdev.Loop {
	t.Helper()
	file := w.Path("disk-" + name)
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 64<<20)); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(file, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return loop
}

// churners is how many pods come and go at the same time.
const churners = 10

func checkNode(t *testing.T, w *containertest.Workshop) {
	image := os.Getenv(nodeImageVariable)
	if _, err := os.Stat(image); err != nil {
		t.Fatalf("%s: %v", nodeImageVariable, err)
	}
	db, noise := nodeDisk(t, w, "db"), nodeDisk(t, w, "noise")
	var others []blockdev.Loop
	for n := range churners {
		others = append(others, nodeDisk(t, w, fmt.Sprint("other-", n)))
	}
	weighted := blockdevtest.SetScheduler(t, db.Disk, blockdev.BFQ) == nil && blockdevtest.SetScheduler(t, noise.Disk, blockdev.BFQ) == nil
	tree, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{Node: kubetest.Start(t, w), t: t, tree: tree}
	t.Log("the node is ready")
	s.CRI.Import(image)
	s.deployAgent(nil)
	s.volume("shop", "pv-db", "data-db-0", db.Node())
	s.volume("shop", "pv-noise", "noise", noise.Node())
	s.apply(statefulSet, claimOf("shop", "noise", "pv-noise"), deployment)
	t.Run("journals are placed under the weights of pods", func(t *testing.T) {
		s := s.in(t)
		s.awaitPlaced("shop", "db-0", db.Dev)
		noisy := s.podOf("shop", "app=noise")
		s.awaitPlaced("shop", noisy, noise.Dev)
		if !weighted {
			t.Log("without BFQ there are no weights to check")
			return
		}
		// An annotation, and the weight of a QoS class.
		s.wantWeight("shop", "db-0", db.Dev, 300)
		s.wantWeight("shop", noisy, noise.Dev, 20)
	})
	t.Run("the class of a volume has a weight", func(t *testing.T) {
		if !weighted {
			t.Skip("without BFQ there are no weights")
		}
		s := s.in(t)
		noisy := s.podOf("shop", "app=noise")
		s.apply("{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: disks, annotations: {" + Annotation + `: "40"}}, provisioner: kubernetes.io/no-provisioner}`)
		s.wantWeight("shop", "db-0", db.Dev, 40)
		s.wantWeight("shop", noisy, noise.Dev, 40)
		s.do(s.API.Delete("/apis/storage.k8s.io/v1/storageclasses/disks"))
		s.wantWeight("shop", "db-0", db.Dev, 300)
		s.wantWeight("shop", noisy, noise.Dev, 20)
	})
	testNames(t, s, db)
	testEnds(t, s, db)
	testDrain(t, s, db)
	testRestartOfTheKubelet(t, s, db)
	t.Run("journals are placed after a restart of the node", func(t *testing.T) {
		s := s.in(t)
		s.Restart()
		s.awaitPlaced("shop", "db-0", db.Dev)
		s.awaitPlaced("shop", s.podOf("shop", "app=noise"), noise.Dev)
	})
	t.Run("no pod hangs in Terminating", func(t *testing.T) { s.in(t).churn(others) })
	testWithoutTheAgent(t, s, db, noise)
}

// in is the site for a part of the test.
func (s *site) in(t *testing.T) *site { return &site{s.Node.In(t), t, s.tree, s.config} }

func (s *site) do(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) apply(manifests ...string) {
	s.t.Helper()
	for _, manifest := range manifests {
		s.do(s.API.Apply(manifest))
	}
}

// deployAgent applies what the chart renders, for this node; change changes the agent's
// configuration, if it is not nil. It returns the chart's ServiceMonitor, which only the
// Prometheus operator knows.
func (s *site) deployAgent(change func(config string) string) (monitor kubetest.Object) {
	s.t.Helper()
	text, err := os.ReadFile(os.Getenv(nodeManifestVariable))
	s.do(err)
	objects, err := kubetest.Objects(string(text))
	s.do(err)
	monitors, objects := kubetest.Take(objects, "ServiceMonitor")
	if len(monitors) != 1 {
		s.t.Fatalf("%d ServiceMonitors in the manifest", len(monitors))
	}
	maps, _ := kubetest.Take(objects, "ConfigMap")
	if len(maps) != 1 {
		s.t.Fatalf("%d ConfigMaps in the manifest", len(maps))
	}
	config := kubetest.Text(maps[0], "data", configKey)
	for before, after := range map[string]string{"cgroup_root: /CGROUP_ROOT\n": "cgroup_root: " + s.CgroupRoot + "\n", "cri_socket: /run/CRI_SOCKET\n": "cri_socket: " + s.Socket + "\n"} {
		if strings.Count(config, before) != 1 {
			s.t.Fatalf("the configuration has no %q:\n%s", before, config)
		}
		config = strings.Replace(config, before, after, 1)
	}
	s.config = config
	if change != nil {
		config = change(config)
	}
	maps[0]["data"] = kubetest.Object{configKey: config}
	s.do(s.API.Make(objects))
	s.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {" + NamespaceLabel + ": " + NamespaceAllowed + "}}}")
	s.Await("the agent runs", func() bool { return s.agentAddress() != "" })
	return monitors[0]
}

// configKey is the agent's configuration in its ConfigMap.
const configKey = "agent.yaml"

// volume makes a local PersistentVolume of a device, for one claim.
func (s *site) volume(namespace, name, claim, node string) {
	s.t.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  capacity: {storage: 64Mi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: disks
  claimRef: {namespace: %s, name: %s}
  local: {path: %s, fsType: ext4}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]
`, name, namespace, claim, node, kubetest.Name))
}

func claimOf(namespace, name, volume string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %s, name: %s}
spec: {storageClassName: disks, volumeName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
`, namespace, name, volume)
}

// podSpec is that of a pod that syncs.
func podSpec(claim, resources string) string {
	return fmt.Sprintf(`{
  automountServiceAccountToken: false, terminationGracePeriodSeconds: 5,
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}],
  containers: [{name: main, image: %q, imagePullPolicy: Never, command: [/bin/busybox, sh, -c, %q],
    resources: %s, volumeMounts: [{name: data, mountPath: /data}]}]}`, claim, containertest.CRIImage, writer, resources)
}

var statefulSet = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {namespace: shop, name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}, annotations: {` + Annotation + `: "300"}}
    spec: ` + podSpec("data", "{requests: {cpu: 10m}}") + `
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {storageClassName: disks, volumeName: pv-db, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
`

var deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: shop, name: noise}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: noise}}
  template:
    metadata: {labels: {app: noise}}
    spec: ` + podSpec("noise", "{}") + `
`

// journalOf is the cgroup of the journal's thread of a device; "" if it is not mounted.
func (s *site) journalOf(dev blockdev.Dev) string {
	journal, err := ext4.JournalOf(dev)
	if err != nil {
		return ""
	}
	pid, err := ext4.JournalThread(journal.Name)
	if err != nil {
		return ""
	}
	at, err := s.tree.Of(pid)
	if err != nil {
		return ""
	}
	return at
}

func (s *site) pod(namespace, name string) kubetest.Object {
	object, err := s.API.Get("/api/v1/namespaces/" + namespace + "/pods/" + name)
	if err != nil {
		return nil
	}
	return object
}

// podOf is the name of the one pod of a label.
func (s *site) podOf(namespace, label string) (name string) {
	s.t.Helper()
	s.Await("there is one pod of "+label, func() bool {
		list, err := s.API.Get("/api/v1/namespaces/" + namespace + "/pods?labelSelector=" + label)
		items := kubetest.Items(list)
		if err != nil || len(items) != 1 {
			return false
		}
		name = kubetest.Text(items[0], "metadata", "name")
		return true
	})
	return name
}

// cgroupOf is the cgroup of a running pod; "" if it does not run.
func (s *site) cgroupOf(namespace, name string) string {
	pod := s.pod(namespace, name)
	if kubetest.Text(pod, "status", "phase") != "Running" || !kubetest.Condition(pod, "Ready") || kubetest.Field(pod, "metadata", "deletionTimestamp") != nil {
		return ""
	}
	_, at, _ := locate(s.tree, s.CgroupRoot, kubetest.Text(pod, "metadata", "uid"))
	return at
}

func (s *site) placed(namespace, name string, dev blockdev.Dev) bool {
	at := s.cgroupOf(namespace, name)
	return at != "" && path.Dir(s.journalOf(dev)) == at
}

func (s *site) awaitPlaced(namespace, name string, dev blockdev.Dev) {
	s.t.Helper()
	s.Await("the journal of "+namespace+"/"+name+" is in the pod's cgroup", func() bool { return s.placed(namespace, name, dev) })
}

// wantWeight waits until a pod has a weight on a disk.
func (s *site) wantWeight(namespace, name string, disk blockdev.Dev, want uint64) {
	s.t.Helper()
	whole, err := blockdev.Lookup(disk.String())
	s.do(err)
	offered, err := whole.Scheduler()
	s.do(err)
	weights, err := s.tree.Weights(whole.Dev, offered.Current)
	s.do(err)
	s.Await(fmt.Sprintf("%s/%s has the weight %d", namespace, name, want), func() bool {
		now, err := weights.Get(s.cgroupOf(namespace, name))
		return err == nil && now.Effective() == want
	})
}

// wantEnd deletes a pod after kill, and waits until it has ended.
func (s *site) wantEnd(namespace, name string, kill func()) {
	s.t.Helper()
	uid := kubetest.Text(s.pod(namespace, name), "metadata", "uid")
	if uid == "" {
		s.t.Fatalf("there is no pod %s/%s", namespace, name)
	}
	if kill != nil {
		kill()
	}
	began := time.Now()
	s.do(s.API.Delete("/api/v1/namespaces/" + namespace + "/pods/" + name))
	took := s.awaitEnd(namespace, name, uid, began)
	s.t.Logf("%s/%s ended after %v", namespace, name, took.Round(100*time.Millisecond))
	s.checkEnd(namespace+"/"+name, took)
}

// checkEnd checks the time that a pod was in Terminating. An emulated processor has no bound.
func (s *site) checkEnd(name string, took time.Duration) {
	s.t.Helper()
	if took > podPatience && !s.Emulated() {
		s.t.Errorf("%s was in Terminating for %v", name, took)
	}
}

// awaitEnd waits until a pod is gone, and its cgroup too.
func (s *site) awaitEnd(namespace, name, uid string, began time.Time) time.Duration {
	s.t.Helper()
	s.Await(namespace+"/"+name+" has ended", func() bool {
		pod, err := s.API.Get("/api/v1/namespaces/" + namespace + "/pods/" + name)
		if err != nil {
			return kubetest.IsNotFound(err)
		}
		return kubetest.Text(pod, "metadata", "uid") != uid
	})
	took := time.Since(began)
	s.Await("the cgroup of "+namespace+"/"+name+" is removed", func() bool {
		_, at, err := locate(s.tree, s.CgroupRoot, uid)
		return err == nil && at == ""
	})
	return took
}

func (s *site) agentPod() kubetest.Object {
	list, err := s.API.Get("/api/v1/namespaces/daybook/pods")
	if items := kubetest.Items(list); err == nil && len(items) == 1 && kubetest.Condition(items[0], "Ready") {
		return items[0]
	}
	return nil
}

// agentAddress is where the agent serves metrics; "" if it does not run.
func (s *site) agentAddress() string {
	if at := kubetest.Text(s.agentPod(), "status", "podIP"); at != "" {
		return "http://" + at + ":9435/metrics"
	}
	return ""
}

// metrics are those of the agent; "" if it does not answer.
func (s *site) metrics() string {
	answer, err := http.Get(s.agentAddress())
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

// awaitMetric waits for a line of the agent's metrics with two texts.
func (s *site) awaitMetric(start, end string) {
	s.t.Helper()
	seen := ""
	defer func() {
		if s.t.Failed() {
			s.t.Log(seen)
		}
	}()
	s.Await("a metric "+start+" "+end, func() bool {
		seen = s.metrics()
		for line := range strings.Lines(seen) {
			if strings.HasPrefix(line, start) && strings.Contains(line, end) && !strings.HasSuffix(line, " 0\n") {
				return true
			}
		}
		return false
	})
}

// agentProcess is the process of the agent's container.
func (s *site) agentProcess() (pid int) {
	s.t.Helper()
	s.Await("the agent's process", func() bool {
		uid := kubetest.Text(s.agentPod(), "metadata", "uid")
		_, at, err := locate(s.tree, s.CgroupRoot, uid)
		if uid == "" || err != nil || at == "" {
			return false
		}
		processes, err := s.tree.ProcessesBelow(at)
		if err != nil {
			return false
		}
		for _, p := range processes {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
			if words := strings.Split(string(text), "\x00"); len(words) > 2 && words[1] == "agent" {
				pid = p
				return true
			}
		}
		return false
	})
	return pid
}

// guardiansOf are the guardians of an agent.
func guardiansOf(agent int) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		words := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
		if len(words) == 3 && strings.HasSuffix(words[0], "daybook-adopt-guard") && words[2] == strconv.Itoa(agent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

func (s *site) kill(pids ...int) {
	s.t.Helper()
	if slices.Contains(pids, 0) || len(pids) == 0 {
		s.t.Fatalf("no process to kill: %v", pids)
	}
	for _, pid := range pids {
		s.do(unix.Kill(pid, unix.SIGKILL))
	}
}

// drain does what "kubectl drain --ignore-daemonsets" does, and then lets pods in again.
func (s *site) drain() {
	s.t.Helper()
	node := "/api/v1/nodes/" + kubetest.Name
	s.do(s.API.Patch(node, kubetest.Object{"spec": kubetest.Object{"unschedulable": true}}))
	list, err := s.API.Get("/api/v1/namespaces/shop/pods")
	s.do(err)
	began := time.Now()
	evicted := 0
	for _, pod := range kubetest.Items(list) {
		name := kubetest.Text(pod, "metadata", "name")
		_, err := s.API.Create("/api/v1/namespaces/shop/pods/"+name+"/eviction", kubetest.Object{
			"apiVersion": "policy/v1", "kind": "Eviction", "metadata": kubetest.Object{"namespace": "shop", "name": name}})
		s.do(err)
		evicted++
	}
	for _, pod := range kubetest.Items(list) {
		took := s.awaitEnd("shop", kubetest.Text(pod, "metadata", "name"), kubetest.Text(pod, "metadata", "uid"), began)
		s.checkEnd(kubetest.Text(pod, "metadata", "name"), took)
	}
	if evicted < 2 {
		s.t.Errorf("%d pods were evicted; want 2", evicted)
	}
	s.t.Logf("%d pods were evicted within %v", evicted, time.Since(began).Round(100*time.Millisecond))
	s.do(s.API.Patch(node, kubetest.Object{"spec": kubetest.Object{"unschedulable": false}}))
}

// churn makes pods, each with a volume, and deletes them: every second one as soon as it
// runs, the others when the journal is placed.
func (s *site) churn(disks []blockdev.Loop) {
	s.t.Helper()
	count := numberFrom(s.t, deletionsVariable, 20)
	before := s.usage()
	began := time.Now()
	var mu sync.Mutex
	placed := 0
	var times []time.Duration
	var group sync.WaitGroup
	for n, disk := range disks {
		claim := fmt.Sprint("other-", n)
		s.volume("shop", "pv-"+claim, claim, disk.Node())
		s.apply(claimOf("shop", claim, "pv-"+claim))
		group.Go(func() {
			for i := n; i < count && !s.t.Failed(); i += len(disks) {
				name := fmt.Sprint("other-", i)
				resources := []string{"{}", "{requests: {cpu: 10m}}", "{limits: {cpu: 100m, memory: 32Mi}}"}[i%3]
				if err := s.API.Apply("{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: " + name + "}, spec: " + podSpec(claim, resources) + "}"); err != nil {
					s.t.Error(err)
					return
				}
				took, wasPlaced, err := s.come(name, disk, i%2 == 0)
				mu.Lock()
				times = append(times, took)
				if wasPlaced {
					placed++
				}
				mu.Unlock()
				if err != nil {
					s.t.Errorf("%s: %v\n%s", name, err, s.explain("shop", name, disk.Dev))
					return
				}
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	after := s.usage()
	if slices.Sort(times); len(times) == 0 {
		s.t.Fatal("no pod was deleted")
	}
	median, longest := times[len(times)/2], times[len(times)-1]
	s.t.Logf("%d pods were deleted in %v, %d of them with the journal in their cgroup; the longest time in Terminating was %v, the median %v",
		len(times), took.Round(time.Second), placed, longest.Round(100*time.Millisecond), median.Round(100*time.Millisecond))
	if !s.t.Failed() {
		s.keepFigures(func(r *node.Result) {
			r.Deletions = &node.Deletions{Count: len(times), Placed: placed, Parallel: len(disks), Seconds: took.Seconds(), MedianSeconds: median.Seconds(),
				LongestSeconds: longest.Seconds(), Processor: (after.seconds - before.seconds) / took.Seconds()}
		})
	}
	if longest > podPatience {
		s.t.Errorf("a pod was in Terminating for %v", longest)
	}
	if placed < count/2 {
		s.t.Errorf("the journal was placed for %d of %d pods", placed, count)
	}
	s.t.Logf("the agent used %.1f ms of processor time a second (%.2f %% of one processor), and has at most %d MiB of memory resident",
		(after.seconds-before.seconds)/took.Seconds()*1000, (after.seconds-before.seconds)/took.Seconds()*100, after.peakBytes>>20)
}

// come waits until a pod runs, deletes it, and waits for its end. It must not fail the
// test, because it is not in the test's goroutine.
func (s *site) come(name string, disk blockdev.Loop, placed bool) (took time.Duration, wasPlaced bool, err error) {
	await := func(what string, patience time.Duration, holds func() bool) error {
		for deadline := time.Now().Add(patience); !holds(); time.Sleep(200 * time.Millisecond) {
			if time.Now().After(deadline) {
				return fmt.Errorf("%s: not within %v", what, patience)
			}
		}
		return nil
	}
	if err := await("it runs", kubetest.Patience, func() bool {
		return s.cgroupOf("shop", name) != "" && (!placed || s.placed("shop", name, disk.Dev))
	}); err != nil {
		return 0, false, err
	}
	wasPlaced = s.placed("shop", name, disk.Dev)
	uid := kubetest.Text(s.pod("shop", name), "metadata", "uid")
	began := time.Now()
	if err := s.API.Delete("/api/v1/namespaces/shop/pods/" + name); err != nil {
		return 0, wasPlaced, err
	}
	err = await("it ends", kubetest.Patience, func() bool {
		_, err := s.API.Get("/api/v1/namespaces/shop/pods/" + name)
		return kubetest.IsNotFound(err)
	})
	took = time.Since(began)
	return took, wasPlaced, errors.Join(err, await("its cgroup is removed", kubetest.Patience, func() bool {
		_, at, err := locate(s.tree, s.CgroupRoot, uid)
		return err == nil && at == ""
	}))
}

// explain is what is known of a pod that does not do what it should.
func (s *site) explain(namespace, name string, dev blockdev.Dev) string {
	var out strings.Builder
	fmt.Fprintf(&out, "--- its journal is in %q, and its cgroup is %q\n", s.journalOf(dev), s.cgroupOf(namespace, name))
	for _, path := range []string{"/pods/" + name, "/events?fieldSelector=involvedObject.name%3D" + name} {
		object, err := s.API.Get("/api/v1/namespaces/" + namespace + path)
		text, _ := json.Marshal(object)
		fmt.Fprintf(&out, "--- %s: %.6000s, %v\n", path, text, err)
	}
	return out.String() + s.agentLog() + s.Logs()
}

// usage is what the agent and its guardian have used.
type usage struct {
	seconds   float64
	peakBytes int64
}

func (s *site) usage() (u usage) {
	s.t.Helper()
	agent := s.agentProcess()
	for _, pid := range append(guardiansOf(agent), agent) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		s.do(err)
		_, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		for _, field := range fields[11:13] { // utime, stime
			ticks, err := strconv.ParseFloat(field, 64)
			s.do(err)
			u.seconds += ticks / 100
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		s.do(err)
		for line := range strings.Lines(string(status)) {
			if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
				kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
				s.do(err)
				u.peakBytes += kib << 10
			}
		}
	}
	return u
}
