package agent

import (
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/victimtest"
)

// The parts of the test of a node that do not depend on the node. The pod shop/db-0 has the
// volume db, the pods app=noise have noise.

func testNames(t *testing.T, s *site, db blockdev.Loop) {
	t.Helper()
	t.Run("metrics have the names of pods and volumes", func(t *testing.T) {
		s := s.in(t)
		s.awaitMetric(`daybook_agent_volume_placed{device="`+db.Name+`",namespace="shop",placement="pod",pod="db-0",volume="pv-db"}`, "1")
		s.awaitMetric(`daybook_agent_container_info{container="shop/db-0/main"`, "1")
		s.awaitMetric(`daybook_journal_bytes_total{cgroup=`, `container="shop/db-0/main",device="`+db.Name+`",runtime="kubernetes"} `)
	})
}

// Pods end, with and without an agent.
func testEnds(t *testing.T, s *site, db blockdev.Loop) {
	t.Helper()
	t.Run("a pod that is deleted ends", func(t *testing.T) {
		s := s.in(t)
		s.wantEnd("shop", "db-0", nil)
		s.awaitPlaced("shop", "db-0", db.Dev)
	})
	t.Run("a pod ends although the agent was killed", func(t *testing.T) {
		s := s.in(t)
		s.wantEnd("shop", "db-0", func() { s.kill(s.agentProcess()) })
		s.awaitPlaced("shop", "db-0", db.Dev)
	})
	t.Run("a pod ends although the agent and its guardian were killed", func(t *testing.T) {
		s := s.in(t)
		s.wantEnd("shop", "db-0", func() {
			agent := s.agentProcess()
			victimtest.Stop(t, agent) // or it would start another guardian
			s.kill(append(guardiansOf(agent), agent)...)
		})
		s.awaitPlaced("shop", "db-0", db.Dev)
	})
}

func testDrain(t *testing.T, s *site, db blockdev.Loop) {
	t.Helper()
	t.Run("a drained node has no pod left in Terminating", func(t *testing.T) {
		s := s.in(t)
		s.drain()
		s.awaitPlaced("shop", "db-0", db.Dev)
	})
}

func testRestartOfTheKubelet(t *testing.T, s *site, db blockdev.Loop) {
	t.Helper()
	t.Run("journals are placed after a restart of the kubelet and the runtime", func(t *testing.T) {
		s := s.in(t)
		s.KillKubelet()
		s.StartKubelet()
		s.AwaitReady()
		s.wantEnd("shop", "db-0", nil)
		s.awaitPlaced("shop", "db-0", db.Dev)
	})
}

func testWithoutTheAgent(t *testing.T, s *site, db, noise blockdev.Loop) {
	t.Helper()
	t.Run("without the agent journals are where Linux puts them", func(t *testing.T) {
		s := s.in(t)
		s.do(s.API.Delete("/apis/apps/v1/namespaces/daybook/daemonsets/daybook-agent"))
		s.Await("the agent has ended, and has released all", func() bool { return s.journalOf(db.Dev) == "/" && s.journalOf(noise.Dev) == "/" })
		s.wantEnd("shop", "db-0", nil)
	})
}
