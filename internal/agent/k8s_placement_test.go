package agent

import (
	"fmt"
	"path"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/kubetest"
)

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
