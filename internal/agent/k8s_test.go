package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/blockdev/blockdevtest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/containertest"
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
