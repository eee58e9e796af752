package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/experiment/daemon/node"
	"github.com/daybook-project/daybook/internal/kubetest"
)

// churners is how many pods come and go at the same time.
const churners = 10

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
			r.Deletions = &node.Deletions{Measurement: measurement, Count: len(times), Placed: placed, Parallel: len(disks), Seconds: took.Seconds(), MedianSeconds: median.Seconds(),
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
