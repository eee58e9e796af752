package agent

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/kubetest"
)

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
