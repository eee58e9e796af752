package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/ext4test"
)

// The command as in the DaemonSet, with a pod of a real container runtime: the journal of its
// volume is placed, and metrics have the names of the pod.
func TestAgentServesTheMetricsOfPodsByTheirNames(t *testing.T) {
	w := containertest.New(t)
	fs := ext4test.New(t, ext4test.Options{})
	c := w.StartCRI(false)
	const uid = "0f0f0f0f-1111-2222-3333-444444444444"
	cgroup := "/kubepods/burstable/pod" + uid
	w.MakePodCgroup(cgroup)
	kubelet, state := w.Path("kubelet"), w.Path("state")
	mount := filepath.Join(kubelet, "pods", uid, "volumes/kubernetes.io~local-volume/pv-db")
	if err := os.MkdirAll(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(fs.Dir, mount, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ext4.Unmount(context.Background(), mount); err != nil {
			t.Error(err)
		}
	})
	pod := c.StartPod(containertest.PodSpec{
		Name: "db-0", Namespace: "shop", UID: uid, Cgroup: cgroup, Mounts: map[string]string{"/data": mount},
		Script: `trap 'exit 0' TERM; n=0; while :; do n=$((n+1)); /bin/busybox mkdir /data/$n; echo x | /bin/busybox dd of=/data/$n/x conv=fsync 2>/dev/null; /bin/busybox sleep 0.1; done`,
	})
	file := w.Path("agent.yaml")
	config := fmt.Sprintf("kubelet_dir: %s\nstate_dir: %s\ncri_socket: %s\nmetrics: 127.0.0.1:0\ninterval: 200ms\n", kubelet, state, w.Path("cri.sock"))
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := execute(t, "agent", "--check-config", file); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	command := exec.Command(os.Args[0], "agent", "--config", file)
	command.Env = append(os.Environ(), commandVariable+"=1")
	daemon := w.Spawn(command)
	var address string
	w.Await("the agent serves metrics", daemon.Log, func() bool {
		text, _ := os.ReadFile(daemon.Log)
		found := regexp.MustCompile(`serving metrics" address=(\S+)`).FindSubmatch(text)
		if found == nil {
			return false
		}
		address = string(found[1])
		return true
	})
	get := func(path string) string {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return string(text)
	}
	for _, want := range []string{
		`daybook_agent_volume_placed\{device="` + fs.Disk.Name + `",namespace="shop",placement="pod",pod="db-0",volume="pv-db"\} 1`,
		`daybook_agent_container_info\{container="shop/db-0/main",container_name="main",namespace="shop",pod="db-0",pod_uid="` + uid + `"\} 1`,
		`daybook_journal_bytes_total\{cgroup="[^"]*` + uid + `[^"]*",container="shop/db-0/main",device="` + fs.Disk.Name + `",runtime="kubernetes"\} [1-9]`,
	} {
		pattern := regexp.MustCompile(want)
		w.Await("a metric "+want, daemon.Log, func() bool { return pattern.MatchString(get("/metrics")) })
	}
	if health := get("/healthz"); !strings.HasPrefix(health, "ok") {
		t.Error(health)
	}
	// A second agent on this host is refused.
	second := exec.Command(os.Args[0], "agent", "--config", file)
	second.Env = append(os.Environ(), commandVariable+"=1")
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), "is the agent of this host already") {
		t.Errorf("a second agent: %v: %s", err, out)
	}
	daemon.Stop()
	if err := pod.Stop(); err != nil {
		t.Error(err)
	}
	if err := containertest.RemovePodCgroup(cgroup, 0); err != nil {
		t.Errorf("the agent has ended, and the pod's cgroup cannot be removed: %v", err)
	}
}
