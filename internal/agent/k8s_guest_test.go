package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/kubetest"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/systemd"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// The most common node: cgroup v2, and a kubelet and a containerd with the systemd driver. The
// node is a guest; its control plane runs on the host.
func TestGuestNodeWithSystemdRunsTheAgent(t *testing.T) {
	if vmtest.Inside() {
		t.Setenv(kubetest.ProgramsVariable, guestNodeFolder)
		t.Setenv(nodeImageVariable, guestNodeFolder+"/image.tar")
		t.Setenv(nodeManifestVariable, guestNodeFolder+"/agent.yaml")
	}
	kubetest.Programs(t)
	if !vmtest.Inside() {
		needGuestNode(t)
	}
	for _, kernel := range guestNodeKernels(t) {
		t.Run("node-"+kernel, func(t *testing.T) { checkGuestNode(t, kernel) })
	}
}

// guestNodeKernels are the kernels of the node, the one of most distributions first.
func guestNodeKernels(t *testing.T) []string {
	names := slices.Clone(vmtest.Kernels(t))
	slices.Reverse(names)
	return names
}

// guestNodeFolder has the kubelet, the agent's image and its manifest in the guest. Their paths on
// the host can be below /tmp, where the guest mounts a file system of its own.
const guestNodeFolder = "/opt/node"

// What the guest has of the host besides, at the same path.
var (
	guestNodePrograms = []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc"}
	guestNodeFiles    = []string{"/usr/bin/busybox", "/usr/lib/cni/ptp", "/usr/lib/cni/host-local", "/usr/lib/cni/loopback"}
)

// needGuestNode skips the test if something is missing, and lists all that is.
func needGuestNode(t *testing.T) {
	t.Helper()
	needs.Root(t)
	var missing []string
	for _, program := range append(guestNodePrograms, "ip", "qemu-system-x86_64") {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	for _, file := range append(guestNodeFiles, kubetest.KubeletProgram(t)) {
		if _, err := os.Stat(file); err != nil {
			missing = append(missing, file)
		}
	}
	for variable, what := range map[string]string{nodeImageVariable: "the agent's image", nodeManifestVariable: "what the chart renders"} {
		if _, err := os.Stat(os.Getenv(variable)); err != nil {
			missing = append(missing, fmt.Sprintf("%s (%s=%q)", what, variable, os.Getenv(variable)))
		}
	}
	slices.Sort(missing)
	needs.That(t, len(missing) == 0, strings.Join(missing, ", ")+"; make k8s-guest-test installs and builds them")
}

func checkGuestNode(t *testing.T, kernel string) {
	t.Setenv("DAYBOOK_VM_KERNELS", kernel)
	config := vmtest.Config{
		Modules: "ext4,bfq,loop,overlay,veth", Memory: "3G", Network: true, Fresh: true,
		Give: []string{
			kubetest.KubeletProgram(t) + ":" + guestNodeFolder + "/kubelet",
			os.Getenv(nodeImageVariable) + ":" + guestNodeFolder + "/image.tar",
			os.Getenv(nodeManifestVariable) + ":" + guestNodeFolder + "/agent.yaml",
		},
	}
	config.Give = append(config.Give, guestNodePrograms...)
	for _, file := range guestNodeFiles {
		if filepath.Base(file) == "busybox" {
			file += ":/opt/bin/busybox" // not in place of the guest's programs
		}
		config.Give = append(config.Give, file)
	}
	if vmtest.Inside() {
		vmtest.Systemd(t, config, checkNodeWithSystemd)
		return
	}
	kubetest.EnterControlPlane(t, func(t *testing.T) { vmtest.Systemd(t, config, checkNodeWithSystemd) })
}

func checkNodeWithSystemd(t *testing.T) {
	t.Setenv("PATH", os.Getenv("PATH")+":/opt/bin")
	w := containertest.New(t)
	db, noise := nodeDisk(t, w, "db"), nodeDisk(t, w, "noise")
	if err := errors.Join(db.SetScheduler(blockdev.BFQ), noise.SetScheduler(blockdev.BFQ)); err != nil {
		t.Fatal(err)
	}
	tree, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	if tree.Version() != cgroup.V2 {
		t.Fatalf("cgroup %s", tree.Version())
	}
	s := &site{Node: kubetest.Join(t, w), t: t, tree: tree}
	t.Log("the node is ready")
	s.CRI.Import(os.Getenv(nodeImageVariable))
	s.deployAgent(nil)
	s.volume("shop", "pv-db", "data-db-0", db.Node())
	s.volume("shop", "pv-noise", "noise", noise.Node())
	s.apply(statefulSet, claimOf("shop", "noise", "pv-noise"), deployment)
	t.Run("journals are placed in the slices of pods", func(t *testing.T) {
		s := s.in(t)
		s.awaitPlaced("shop", "db-0", db.Dev)
		noisy := s.podOf("shop", "app=noise")
		s.awaitPlaced("shop", noisy, noise.Dev)
		s.wantSlice("shop", "db-0", Burstable)
		s.wantSlice("shop", noisy, BestEffort)
	})
	t.Run("weights are properties of slices", func(t *testing.T) {
		s := s.in(t)
		noisy := s.podOf("shop", "app=noise")
		for _, when := range []string{"placed", "after daemon-reload"} {
			s.wantWeight("shop", "db-0", db.Dev, 300)
			s.wantWeight("shop", noisy, noise.Dev, 20)
			s.wantProperty(when, "shop", "db-0", 300)
			s.wantProperty(when, "shop", noisy, 20)
			if out, err := exec.Command("systemctl", "daemon-reload").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	})
	testNames(t, s, db)
	t.Run("sums of metrics count each byte once", func(t *testing.T) { s.in(t).awaitSum(db.Name) })
	testEnds(t, s, db)
	testRestartOfTheKubelet(t, s, db)
	testDrain(t, s, db)
	testWithoutTheAgent(t, s, db, noise)
}

// wantSlice checks that the cgroup of a running pod is the slice of its class.
func (s *site) wantSlice(namespace, name, class string) {
	s.t.Helper()
	uid := kubetest.Text(s.pod(namespace, name), "metadata", "uid")
	parent := "kubepods-" + class
	want := path.Join("/kubepods.slice", parent+".slice", parent+"-pod"+strings.ReplaceAll(uid, "-", "_")+".slice")
	if at := s.cgroupOf(namespace, name); at != want {
		s.t.Errorf("%s/%s is in %q; want %q", namespace, name, at, want)
	}
}

// awaitSum waits until a disk has written much, and the sum over all series of the disk is
// what it read and wrote: on cgroup v2 the counters of a pod's slice contain its containers, so
// the sum would be about twice as much if both were added.
func (s *site) awaitSum(disk string) {
	s.t.Helper()
	const least = 1 << 20
	var sum, all float64
	s.Await("the sum over the series of "+disk, func() bool {
		sum, all = 0, 0
		for line := range strings.Lines(s.metrics()) {
			name, rest, _ := strings.Cut(line, "{")
			labels, value, _ := strings.Cut(rest, "} ")
			bytes, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil || !strings.Contains(labels, `device="`+disk+`"`) {
				continue
			}
			switch name {
			case "daybook_charged_read_bytes_total", "daybook_charged_write_bytes_total", "daybook_journal_bytes_total", "daybook_metadata_bytes_total", "daybook_uncharged_bytes_total":
				sum += bytes
			case "daybook_disk_bytes_total":
				all = bytes
			}
		}
		return all > least && sum > 0.7*all && sum < 1.3*all
	})
	s.t.Logf("the sum over the series of %s is %.0f bytes, and the disk read and wrote %.0f", disk, sum, all)
}

// wantProperty waits until systemd has a weight of the slice of a pod, for one disk.
func (s *site) wantProperty(when, namespace, name string, want uint64) {
	s.t.Helper()
	var units systemd.Manager
	s.Await(when+": the weight of the slice of "+namespace+"/"+name, func() bool {
		unit, err := units.Unit(s.cgroupOf(namespace, name))
		if err != nil || unit == "" {
			return false
		}
		own, err := units.DeviceWeights(unit)
		return err == nil && len(own) == 1 && own[0].Weight == systemd.UnitWeight("io.bfq.weight", want)
	})
}
