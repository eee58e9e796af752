package agent

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/experiment/daemon/node"
	"github.com/daybook-project/daybook/internal/kubetest"
)

// podsVariable is how many pods the node has.
const podsVariable = "DAYBOOK_KUBERNETES_PODS"

// What the agent costs with many pods, of which two write and the others are idle.
func TestManyPodsOnARealNode(t *testing.T) {
	kubetest.Programs(t)
	kubetest.Enter(t, func(t *testing.T, w *containertest.Workshop) { checkManyPods(t, w) })
}

func checkManyPods(t *testing.T, w *containertest.Workshop) {
	db, noise := nodeDisk(t, w, "db"), nodeDisk(t, w, "noise")
	tree, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{Node: kubetest.Start(t, w), t: t, tree: tree}
	s.CRI.Import(os.Getenv(nodeImageVariable))
	s.deployAgent(nil)
	s.volume("shop", "pv-db", "data-db-0", db.Node())
	s.volume("shop", "pv-noise", "noise", noise.Node())
	s.apply(statefulSet, claimOf("shop", "noise", "pv-noise"), deployment)
	s.awaitPlaced("shop", "db-0", db.Dev)
	// Besides the two and the agent.
	pods := numberFrom(t, podsVariable, 200)
	idle := max(pods-3, 1)
	s.apply(fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: shop, name: idle}
spec:
  replicas: %d
  selector: {matchLabels: {app: idle}}
  template:
    metadata: {labels: {app: idle}}
    spec:
      automountServiceAccountToken: false
      hostNetwork: true
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: %q, imagePullPolicy: Never, command: [/bin/busybox, sleep, "1000000"]}]
`, idle, containertest.CRIImage))
	const patience = 20 * time.Minute
	began := time.Now()
	for ready := 0; ready < idle; time.Sleep(2 * time.Second) {
		object, err := s.API.Get("/apis/apps/v1/namespaces/shop/deployments/idle")
		s.do(err)
		number, _ := kubetest.Field(object, "status", "readyReplicas").(float64)
		ready = int(number)
		if time.Since(began) > patience {
			t.Fatalf("only %d of %d pods run\n%s", ready, idle, s.Logs())
		}
	}
	t.Logf("%d pods run after %v", pods, time.Since(began).Round(time.Second))
	time.Sleep(20 * time.Second)
	before, begin := s.usage(), time.Now()
	time.Sleep(60 * time.Second)
	after, seconds := s.usage(), time.Since(begin).Seconds()
	cost := node.Cost{Measurement: measurement, Pods: pods, Seconds: seconds, Processor: (after.seconds - before.seconds) / seconds, PeakBytes: after.peakBytes}
	t.Logf("with %d pods the agent and its guardian use %.2f %% of a processor, and have at most %d MiB of memory resident", pods, 100*cost.Processor, cost.PeakBytes>>20)
	s.keepFigures(func(r *node.Result) { r.Cost = &cost })
	if cost.Processor > node.MaxProcessor {
		t.Errorf("the agent uses %.2f %% of a processor; want at most %.0f %%", 100*cost.Processor, 100*node.MaxProcessor)
	}
	if cost.PeakBytes > node.MaxBytes {
		t.Errorf("the agent has %d MiB resident; want at most %d", cost.PeakBytes>>20, node.MaxBytes>>20)
	}
}
