package agent

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/configfile"
	"github.com/daybook-project/daybook/internal/cri"
)

const (
	uidA = "11111111-2222-3333-4444-555555555555"
	uidB = "66666666-7777-8888-9999-aaaaaaaaaaaa"
)

func TestVolumesOfPodsAreRecognisedByTheirMountPoints(t *testing.T) {
	const dir = "/var/lib/kubelet/pods/" + uidA + "/volumes/"
	for point, want := range map[string]string{
		dir + "kubernetes.io~csi/pvc-1/mount":                                    "pvc-1",
		dir + "kubernetes.io~local-volume/pv-1":                                  "pv-1",
		dir + "kubernetes.io~csi/pvc-1":                                          "",
		dir + "kubernetes.io~csi/pvc-1/mount/sub":                                "",
		dir + "kubernetes.io~local-volume/pv-1/sub":                              "",
		dir + "kubernetes.io~empty-dir/x":                                        "",
		"/var/lib/kubelet/pods/" + uidA + "/volume-subpaths/pv/c/0":              "",
		"/var/lib/kubelet/plugins/kubernetes.io/csi/x.example.com/1/globalmount": "",
		"/var/lib/kubelet2/pods/" + uidA + "/volumes/kubernetes.io~csi/p/mount":  "",
		"/": "",
	} {
		uid, name, ok := parsePath(point, "/var/lib/kubelet")
		if ok != (want != "") || name != want || ok && uid != uidA {
			t.Errorf("%s: %q, %q, %t; want %q", point, uid, name, ok, want)
		}
	}
	mounts := []blockdev.Mount{
		{Dev: blockdev.Dev{Major: 7}, Root: "/", Type: "xfs", Point: dir + "kubernetes.io~csi/pvc-1/mount"},
		{Dev: blockdev.Dev{Minor: 40}, Root: "/", Type: "ext4", Point: dir + "kubernetes.io~csi/pvc-2/mount"},
		{Dev: blockdev.Dev{Major: 7}, Root: "/", Type: "ext4", Point: dir + "kubernetes.io~csi/pvc-3/mount"},
		// Directories of the node's own file system: its journal is no pod's.
		{Dev: blockdev.Dev{Major: 8}, Root: "/var/lib/csi-hostpath-data/1", Type: "ext4", Point: dir + "kubernetes.io~csi/pvc-4/mount"},
		{Dev: blockdev.Dev{Major: 8}, Root: "/opt/local-path/pv-5", Type: "ext4", Point: dir + "kubernetes.io~local-volume/pv-5"},
	}
	if got := volumesOf(mounts, "/var/lib/kubelet"); len(got) != 1 || got[0].Name != "pvc-3" || got[0].PodUID != uidA {
		t.Errorf("%+v", got)
	}
}

func volume(uid, name string, minor uint32) Volume {
	return Volume{PodUID: uid, Name: name, Mount: blockdev.Mount{Dev: blockdev.Dev{Major: 7, Minor: minor}, Type: "ext4"}}
}

func TestAJournalGoesWhereItsPodsAre(t *testing.T) {
	pods := map[string]Pod{
		uidA:  {UID: uidA, Namespace: "web", Name: "a", QoS: Guaranteed, Cgroup: "/kubepods/poda", Ready: true, Annotations: map[string]string{Annotation: "700"}},
		uidB:  {UID: uidB, Namespace: "batch", Name: "b", QoS: Burstable, Cgroup: "/kubepods/burstable/podb", Ready: true, Annotations: map[string]string{Annotation: "900"}},
		"end": {UID: "end", Cgroup: "/kubepods/podend"},
		"off": {UID: "off", Cgroup: "/kubepods/podoff", Unknown: true},
		"new": {UID: "new", Ready: true},
	}
	config := DefaultConfig()
	config.Namespaces = []string{"we*"}
	config.Weights = map[string]uint64{Guaranteed: 300, Burstable: 200}
	volumes := []Volume{
		volume(uidA, "own", 1), volume(uidA, "own", 1), // also by a subpath
		volume(uidA, "shared", 2), volume(uidB, "shared", 2), volume("end", "shared", 2),
		volume("end", "ended", 3), volume("off", "unknown", 4), volume("new", "starting", 5), volume("gone", "unknown pod", 6),
	}
	got, problems := Plan(config, Choices{}, volumes, pods)
	want := []struct {
		name, cgroup string
		neutral      bool
		pods         int
		weight       uint64
	}{
		{"own", "/kubepods/poda", false, 1, 700},
		{"shared", "", true, 2, 700},
		{"unknown", "/kubepods/podoff", false, 1, 0},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		if g := got[i]; g.Volume.Name != w.name || g.Cgroup != w.cgroup || g.Neutral != w.neutral || len(g.Pods) != w.pods || g.Weight != w.weight {
			t.Errorf("%+v; want %+v", g, w)
		}
	}
	if len(problems) != 1 || !strings.Contains(problems[0], "batch/b") || !strings.Contains(problems[0], "namespaces") {
		t.Errorf("%q", problems)
	}
	config.Placement = PlaceNeutral
	if got, _ := Plan(config, Choices{}, volumes[:1], pods); !got[0].Neutral || got[0].Cgroup != "" || got[0].Shared() || got[0].Weight != 700 {
		t.Errorf("%+v", got)
	}
	config.Placement = PlaceNone
	if got, problems := Plan(config, Choices{}, volumes, pods); len(got) > 0 || len(problems) > 0 {
		t.Errorf("only observed: %+v, %q", got, problems)
	}
	for _, text := range []string{"0", "1001", "x", "-1"} {
		pod := pods[uidA]
		pod.Annotations = map[string]string{Annotation: text}
		if weight, problem := config.weight(Choices{}, Volume{}, pod); weight != 300 || problem == "" {
			t.Errorf("annotation %q: %d, %q", text, weight, problem)
		}
	}
}

func TestTheClassOfAVolumeDecidesBeforeTheAnnotationOfItsPod(t *testing.T) {
	config := DefaultConfig()
	config.APIServer = true
	config.Weights = map[string]uint64{Burstable: 200}
	pod := Pod{UID: uidA, Namespace: "web", Name: "a", QoS: Burstable, Annotations: map[string]string{Annotation: "700"}}
	for _, c := range []struct {
		known   Choices
		want    uint64
		problem string
	}{
		{Choices{}, 200, NamespaceLabel + "=" + NamespaceAllowed},
		{Choices{Namespaces: map[string]bool{"other": true}, Volumes: map[string]uint64{"other": 5}}, 200, "label"},
		{Choices{Namespaces: map[string]bool{"web": true}, Volumes: map[string]uint64{"pv": 0}}, 700, ""},
		{Choices{Namespaces: map[string]bool{"web": true}, Volumes: map[string]uint64{"pv": 40}}, 40, ""},
		{Choices{Volumes: map[string]uint64{"pv": 40}}, 40, ""},
	} {
		weight, problem := config.weight(c.known, Volume{Name: "pv"}, pod)
		if weight != c.want || (problem == "") != (c.problem == "") || !strings.Contains(problem, c.problem) {
			t.Errorf("%+v: %d, %q; want %d, %q", c.known, weight, problem, c.want, c.problem)
		}
	}
}

func TestAPodIsReadyIfOneOfItsSandboxesIs(t *testing.T) {
	for _, states := range [][]bool{{true, false}, {false, true}} {
		var sandboxes []cri.Sandbox
		for _, ready := range states {
			sandboxes = append(sandboxes, cri.Sandbox{UID: uidA, Ready: ready})
		}
		if pods := podsOf(sandboxes); !pods[uidA].Ready {
			t.Errorf("%v: %+v", states, pods)
		}
	}
	if pods := podsOf([]cri.Sandbox{{UID: uidA}}); pods[uidA].Ready {
		t.Errorf("%+v", pods)
	}
}

func TestCgroupsOfPodsHaveTheKubeletsNames(t *testing.T) {
	slice := strings.ReplaceAll(uidA, "-", "_") + ".slice"
	for _, c := range []struct {
		root, component string
		want            []string
	}{
		{"/", "", []string{"/kubepods/pod" + uidA, "/kubepods.slice/kubepods-pod" + slice}},
		{"/", "burstable", []string{"/kubepods/burstable/pod" + uidA, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + slice}},
		{"/kubelet", "besteffort", []string{"/kubelet/kubepods/besteffort/pod" + uidA, "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod" + slice}},
	} {
		if got := candidates(c.root, c.component, uidA); !slices.Equal(got, c.want) {
			t.Errorf("%s %s: %q; want %q", c.root, c.component, got, c.want)
		}
	}
}

func TestTheConfigurationIsCheckedAsAWhole(t *testing.T) {
	config, err := ReadConfig(strings.NewReader(`
kubelet_dir: /data/kubelet/
cri_socket: unix:///run/crio/crio.sock
state_dir: /mnt/daybook
placement: neutral
interval: 500ms
metrics: ""
waits: true
api_server: true
namespaces: ["team-*", web]
weights: {guaranteed: 300, besteffort: 20}
control: {devices: [sda], containers: [{match: "web/*", weight: 300}]}
`), "x")
	if err != nil {
		t.Fatal(err)
	}
	if config.KubeletDir != "/data/kubelet" || config.CRISocket != "/run/crio/crio.sock" || config.Placement != PlaceNeutral ||
		config.Interval != 500*time.Millisecond || config.Metrics != "" || !config.Account || !config.Waits || !config.APIServer || len(config.Namespaces) != 2 ||
		config.Weights[Guaranteed] != 300 || config.Weights[BestEffort] != 20 || config.Control == nil || config.Control.Devices[0] != "sda" {
		t.Errorf("%+v", config)
	}
	// In a pod, a directory of the container ends with it: control keeps its records where the agent does.
	if config.StateDir != "/mnt/daybook" || config.Control.StateDir != "/mnt/daybook" {
		t.Errorf("state in %s, that of control in %s; want /mnt/daybook", config.StateDir, config.Control.StateDir)
	}
	if config, err := ReadConfig(strings.NewReader("state_dir: /a\ncontrol: {devices: [sda], state_dir: /b}\n"), "x"); err != nil || config.Control.StateDir != "/b" {
		t.Errorf("a directory for control alone: %+v, %v", config.Control, err)
	}
	if config, err := ReadConfig(strings.NewReader(""), "x"); err != nil || config.Interval != time.Second || config.Control != nil || config.APIServer || config.Waits {
		t.Errorf("%+v, %v", config, err)
	}
	_, err = ReadConfig(strings.NewReader(`kubelet_dir: x
placement: root
interval: 1h
account: maybe
namespaces: ["["]
weights: {gold: 1, burstable: 0}
control:
  interval: 1ms
what: is
metrics: nonsense:abc
`), "agent.yaml")
	var wrong *configfile.Error
	if !errors.As(err, &wrong) {
		t.Fatal(err)
	}
	for line, want := range map[int]string{1: "kubelet_dir", 2: "placement: \"root\"", 3: "interval", 4: "account", 5: "no pattern", 6: "gold", 8: "interval", 9: "unknown key what", 10: "metrics: \"nonsense:abc\""} {
		if !slices.ContainsFunc(wrong.Problems, func(p configfile.Problem) bool { return p.Line == line && strings.Contains(p.Text, want) }) {
			t.Errorf("line %d lacks %q: %v", line, want, err)
		}
	}
	if config, err := ReadConfig(strings.NewReader("metrics: 9440\n"), "x"); err != nil || config.Metrics != "127.0.0.1:9440" {
		t.Errorf("a port alone: %+v, %v", config, err)
	}
	if _, err := ReadConfig(strings.NewReader("account: false\nwaits: true\n"), "x"); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("waits without the account: %v", err)
	}
	if _, err := ReadConfig(strings.NewReader("control: {devicess: [sda]}\n"), "x"); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("an unknown key of control: %v", err)
	}
}

func TestAnAliasStandsForItsAnchorAnywhereInTheConfiguration(t *testing.T) {
	config, err := ReadConfig(strings.NewReader(`
cri_socket: &socket unix:///run/crio/crio.sock
namespaces: &names [sda, sdb]
weights: {guaranteed: &weight 300, burstable: *weight}
control:
  devices: *names
  interval: &again 2s
  containers:
  - &web {match: "web/*", weight: *weight}
  - {match: "db/*", weight: *weight}
  tunables: {low_latency: &weight 1, slice_idle: *weight}
`), "x")
	if err != nil {
		t.Fatal(err)
	}
	rules := config.Control.Containers
	if !slices.Equal(config.Control.Devices, []string{"sda", "sdb"}) || config.Weights[Burstable] != 300 || config.Control.Tunables["slice_idle"] != 1 ||
		len(rules) != 2 || rules[0].Weight != 300 || rules[1].Weight != 300 {
		t.Errorf("%+v, control %+v", config, config.Control)
	}
	for text, want := range map[string]string{
		"weights: &w {guaranteed: 1}\ncontrol: *w":                    "line 2: unknown key guaranteed",
		"weights: &w {burstable: 1}\ncontrol: {<<: *w}":               "line 2: unknown key burstable",
		"namespaces: &n [sda]\nweights: *n":                           "line 2: weights: want a mapping",
		"control: &c {devices: [sda], tunables: *c}":                  `"devices" is none that Daybook changes`,
		"namespaces: &n [sda]\ncontrol: {devices: *n, what: *n}":      "line 2: unknown key what",
		"cri_socket: &s unix:///a\nkubelet_dir: *s":                   "line 2: kubelet_dir",
		"interval: &i 1ms\ncontrol: {devices: [sda], interval: *i}\n": "line 1: interval",
	} {
		if _, err := ReadConfig(strings.NewReader(text), "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

// Each of the names stands for ten of the one before.
func TestManyAliasesDoNotFillTheMemory(t *testing.T) {
	text := "namespaces:\n- &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for n := range 30 {
		alias := fmt.Sprintf("*a%d", n)
		text += fmt.Sprintf("- &a%d [%s]\n", n+1, strings.Join(slices.Repeat([]string{alias}, 10), ", "))
	}
	if _, err := ReadConfig(strings.NewReader(text+"control: {devices: [sda], tunables: *a30}\n"), "x"); err == nil {
		t.Error("it was accepted")
	}
}

// The innermost comes first, so that each of the others contains what has its name already.
func TestAliasesOfNestedAnchorsDoNotFillTheMemory(t *testing.T) {
	const depth = 1000
	var text strings.Builder
	text.WriteString("namespaces: ")
	for n := range depth {
		fmt.Fprintf(&text, "[&n%d ", n)
	}
	text.WriteString("x" + strings.Repeat("]", depth) + "\ncontrol: {devices: [sda], tunables: [")
	for n := depth - 1; n >= 0; n-- {
		fmt.Fprintf(&text, "*n%d, ", n)
	}
	text.WriteString("]}\n")
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	if _, err := ReadConfig(strings.NewReader(text.String()), "x"); err == nil {
		t.Error("it was accepted")
	}
	goruntime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 200<<20 {
		t.Errorf("%d bytes were allocated for %d", bytes, text.Len())
	}
}
