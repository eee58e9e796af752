package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const chart = "../daybook"

// everything turns on what is off by default.
func everything() map[string]any {
	return map[string]any{
		"config": map[string]any{
			"criSocket": "unix:///run/crio/crio.sock", "apiServer": true, "namespaces": []any{"team-*"},
			"weights": map[string]any{"guaranteed": 300}, "control": map[string]any{"devices": []any{"sda"}},
		},
		"metrics": map[string]any{
			"serviceMonitor": map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
			"prometheusRule": map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
		},
		"seLinuxOptions":   map[string]any{"type": "spc_t"},
		"imagePullSecrets": []any{map[string]any{"name": "registry"}},
		"podAnnotations":   map[string]any{"example.com/a": "b"},
		"affinity":         map[string]any{"nodeAffinity": map[string]any{}},
	}
}

func TestTheChartPassesHelmsLint(t *testing.T) {
	for _, m := range lint.All(chart, everything(), namespace, false).Messages {
		if m.Severity >= support.WarningSev && !strings.Contains(m.Error(), "icon is recommended") {
			t.Error(m.Error())
		}
	}
}

// Each object is of a known kind, and has no field that its type does not have.
func TestRenderedObjectsAreThoseOfTheAPI(t *testing.T) {
	for name, c := range map[string]struct {
		values map[string]any
		want   int
	}{"defaults": {nil, 4}, "everything": {everything(), 8}} {
		objects, err := render(chart, c.values)
		if err != nil {
			t.Fatal(err)
		}
		if len(objects) != c.want {
			t.Errorf("%s: %d objects, want %d", name, len(objects), c.want)
		}
		for file, text := range objects {
			checkObject(t, name+" "+file, text)
		}
	}
}

func checkObject(t *testing.T, name, text string) {
	t.Helper()
	var kind struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
		t.Errorf("%s: %v\n%s", name, err, text)
		return
	}
	into, known := map[string]any{
		"v1 ServiceAccount": &core.ServiceAccount{}, "v1 ConfigMap": &core.ConfigMap{}, "v1 Service": &core.Service{}, "v1 Namespace": &core.Namespace{},
		"apps/v1 DaemonSet":                        &apps.DaemonSet{},
		"rbac.authorization.k8s.io/v1 ClusterRole": &rbac.ClusterRole{}, "rbac.authorization.k8s.io/v1 ClusterRoleBinding": &rbac.ClusterRoleBinding{},
		"monitoring.coreos.com/v1 ServiceMonitor": &monitoring.ServiceMonitor{}, "monitoring.coreos.com/v1 PrometheusRule": &monitoring.PrometheusRule{},
	}[kind.APIVersion+" "+kind.Kind]
	if !known {
		t.Errorf("%s: unknown kind %+v", name, kind)
		return
	}
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Errorf("%s: %v\n%s", name, err, text)
	}
	switch object := into.(type) {
	case *rbac.ClusterRole:
		for _, rule := range object.Rules {
			for _, verb := range rule.Verbs {
				if verb != "get" && verb != "list" {
					t.Errorf("%s: the agent may %s %q", name, verb, rule.Resources)
				}
			}
		}
	case *apps.DaemonSet:
		checkDaemonSet(t, name, object)
	case *monitoring.PrometheusRule:
		checkRules(t, text, object)
	}
}

// The agent needs these of its node; without one it ends at the start, or places nothing.
func checkDaemonSet(t *testing.T, name string, set *apps.DaemonSet) {
	t.Helper()
	pod := set.Spec.Template.Spec
	c := pod.Containers[0]
	if !pod.HostPID || c.SecurityContext == nil || c.SecurityContext.Privileged == nil || !*c.SecurityContext.Privileged {
		t.Errorf("%s: not privileged with the host's process IDs", name)
	}
	mounts := map[string]core.VolumeMount{}
	for _, mount := range c.VolumeMounts {
		mounts[mount.MountPath] = mount
	}
	for _, volume := range pod.Volumes {
		if volume.HostPath == nil {
			continue
		}
		if mount, ok := mounts[volume.HostPath.Path]; !ok || mount.Name != volume.Name {
			t.Errorf("%s: %s is not mounted at its own path", name, volume.HostPath.Path)
		}
	}
	for _, path := range []string{"/var/lib/kubelet", "/sys", "/sys/fs/cgroup", "/dev", "/run", "/var/lib/daybook"} {
		if _, ok := mounts[path]; !ok {
			t.Errorf("%s: %s is not mounted", name, path)
		}
	}
	if p := mounts["/var/lib/kubelet"].MountPropagation; p == nil || *p != core.MountPropagationHostToContainer {
		t.Errorf("%s: mounts that come later are not seen", name)
	}
	if set.Spec.MinReadySeconds == 0 {
		t.Errorf("%s: an upgrade goes on although the new agent ends at its start", name)
	}
	for key, value := range set.Spec.Selector.MatchLabels {
		if set.Spec.Template.Labels[key] != value {
			t.Errorf("%s: the selector does not match its pods: %s", name, key)
		}
	}
}

// A node may have the kubelet, the runtime and what is writable at other places.
func TestTheDirectoriesOfANodeAreMounted(t *testing.T) {
	for _, c := range []struct {
		values         map[string]any
		mounted, never []string
	}{
		{map[string]any{"config": map[string]any{"criSocket": "unix:///run/crio/crio.sock"}}, []string{"/run"}, []string{"/run/crio"}},
		{map[string]any{"config": map[string]any{"criSocket": "none"}}, []string{"/run"}, []string{"."}},
		{map[string]any{"config": map[string]any{"criSocket": "/var/run/crio/crio.sock"}}, []string{"/run", "/var/run/crio"}, nil},
		{map[string]any{"config": map[string]any{"criSocket": "/runtime/x.sock"}}, []string{"/runtime"}, nil},
		{map[string]any{"kubeletDir": "/var/snap/microk8s/common/var/lib/kubelet", "config": map[string]any{"criSocket": "unix:///var/snap/microk8s/common/run/containerd.sock"}},
			[]string{"/var/snap/microk8s/common/run", "/var/snap/microk8s/common/var/lib/kubelet", "/run"}, []string{"/var/lib/kubelet"}},
		{map[string]any{"stateDir": "/mnt/daybook"}, []string{"/mnt/daybook"}, []string{"/var/lib/daybook"}},
	} {
		objects, err := render(chart, c.values)
		if err != nil {
			t.Fatal(err)
		}
		var set apps.DaemonSet
		for file, text := range objects {
			if strings.HasSuffix(file, "daemonset.yaml") {
				if err := yaml.UnmarshalStrict([]byte(text), &set); err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
			}
			if dir, set := c.values["stateDir"]; set && strings.HasSuffix(file, "configmap.yaml") && !strings.Contains(text, "state_dir: "+dir.(string)+"\n") {
				t.Errorf("%+v: %s", c.values, text)
			}
		}
		pod := set.Spec.Template.Spec
		mounts, paths := map[string]string{}, map[string]string{} // volumes by path, and paths by volume
		for _, volume := range pod.Volumes {
			if volume.HostPath != nil {
				paths[volume.Name] = volume.HostPath.Path
			}
		}
		for _, mount := range pod.Containers[0].VolumeMounts {
			if path, host := paths[mount.Name]; host && path != mount.MountPath {
				t.Errorf("%+v: %s of the host is mounted at %s", c.values, path, mount.MountPath)
			}
			mounts[mount.MountPath] = mount.Name
		}
		for _, path := range c.mounted {
			if _, ok := mounts[path]; !ok {
				t.Errorf("%+v: %s is not mounted: %v", c.values, path, mounts)
			}
		}
		for _, path := range c.never {
			if _, ok := mounts[path]; ok {
				t.Errorf("%+v: %s is mounted: %v", c.values, path, mounts)
			}
		}
	}
}

// Roles are in no namespace.
func TestTwoReleasesHaveDifferentRoles(t *testing.T) {
	long := strings.Repeat("n", 63) // the longest namespace
	seen := map[string]string{}
	for _, r := range [][2]string{{"a-b", "c"}, {"a", "b-c"}, {long, "one"}, {long, "two"}} {
		objects, err := renderIn(r[0], r[1], chart, everything())
		if err != nil {
			t.Fatal(err)
		}
		var role rbac.ClusterRole
		var binding rbac.ClusterRoleBinding
		for file, into := range map[string]any{"clusterrole.yaml": &role, "clusterrolebinding.yaml": &binding} {
			if err := yaml.UnmarshalStrict([]byte(objects[file]), into); err != nil {
				t.Fatal(err)
			}
		}
		if binding.Name != role.Name || binding.RoleRef.Name != role.Name || strings.ContainsAny(role.Name, "/%") {
			t.Errorf("%v: the role %q is bound by %q as %q", r, role.Name, binding.Name, binding.RoleRef.Name)
		}
		if other, there := seen[role.Name]; there {
			t.Errorf("%v and %s have the role %s", r, other, role.Name)
		}
		seen[role.Name] = strings.Join(r[:], " ")
	}
}

// A path may have characters that mean something in YAML.
func TestPathsInTheConfigurationAreTexts(t *testing.T) {
	const odd = `/a: b #"'c`
	objects, err := render(chart, map[string]any{
		"kubeletDir": odd, "stateDir": odd, "config": map[string]any{"criSocket": odd, "cgroupRoot": odd},
	})
	if err != nil {
		t.Fatal(err)
	}
	var configuration core.ConfigMap
	if err := yaml.UnmarshalStrict([]byte(objects["configmap.yaml"]), &configuration); err != nil {
		t.Fatalf("%v\n%s", err, objects["configmap.yaml"])
	}
	var config map[string]any
	if err := yaml.Unmarshal([]byte(configuration.Data["agent.yaml"]), &config); err != nil {
		t.Fatalf("%v\n%s", err, configuration.Data["agent.yaml"])
	}
	for _, key := range []string{"kubelet_dir", "state_dir", "cri_socket", "cgroup_root"} {
		if config[key] != odd {
			t.Errorf("%s is %q", key, config[key])
		}
	}
}

// The kubelet asks for the health at the pod's address, which is an IPv6 address in some clusters.
func TestMetricsAreServedOnAllAddressesOfThePod(t *testing.T) {
	objects, err := render(chart, map[string]any{"metrics": map[string]any{"port": 9555}})
	if err != nil {
		t.Fatal(err)
	}
	var configuration core.ConfigMap
	if err := yaml.UnmarshalStrict([]byte(objects["configmap.yaml"]), &configuration); err != nil {
		t.Fatal(err)
	}
	var config struct{ Metrics string }
	if err := yaml.Unmarshal([]byte(configuration.Data["agent.yaml"]), &config); err != nil {
		t.Fatal(err)
	}
	if config.Metrics != "*:9555" {
		t.Errorf("metrics is %q", config.Metrics)
	}
}

// checkRules lets Prometheus itself read the alerts.
func checkRules(t *testing.T, text string, rule *monitoring.PrometheusRule) {
	t.Helper()
	if len(rule.Spec.Groups) != 1 || len(rule.Spec.Groups[0].Rules) != 8 {
		t.Errorf("alerts: %+v", rule.Spec.Groups)
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool is missing: the expressions are not checked")
		return
	}
	var object struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	rules, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml") // as testdata/alerts.yaml names it
	if err := os.WriteFile(file, rules, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, rules)
	}
	// When each alert fires, and when it does not.
	tests, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range rule.Spec.Groups[0].Rules {
		if !strings.Contains(string(tests), "alertname: "+alert.Alert) {
			t.Errorf("no test of %s", alert.Alert)
		}
	}
	script := filepath.Join(filepath.Dir(file), "tests.yaml")
	if err := os.WriteFile(script, tests, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "test", "rules", script).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"an unknown key":  {"confg": map[string]any{}},
		"a weight":        {"config": map[string]any{"weights": map[string]any{"guaranteed": 1001}}},
		"a QoS class":     {"config": map[string]any{"weights": map[string]any{"gold": 1}}},
		"a placement":     {"config": map[string]any{"placement": "root"}},
		"a relative path": {"kubeletDir": "var"},
		"a part":          {"metrics": map[string]any{"prometheusRule": map[string]any{"poolUsed": 2}}},
		// With these the agent would end at its start.
		"a short interval":        {"config": map[string]any{"interval": "199ms"}},
		"a long interval":         {"config": map[string]any{"interval": "31s"}},
		"a long interval in ms":   {"config": map[string]any{"interval": "30001ms"}},
		"no interval":             {"config": map[string]any{"interval": "0s"}},
		"waits without account":   {"config": map[string]any{"waits": true, "account": false}},
		"control without account": {"config": map[string]any{"control": map[string]any{"devices": []any{"sda"}}, "account": false}},
	} {
		if _, err := render(chart, values); err == nil {
			t.Errorf("%s was rendered", name)
		}
	}
	for _, config := range []map[string]any{
		{"interval": "200ms"}, {"interval": "999ms"}, {"interval": "1000ms"}, {"interval": "30000ms"}, {"interval": "1s"}, {"interval": "30s"},
		{"account": false}, {"waits": true}, {"control": map[string]any{"devices": []any{"sda"}}},
	} {
		if _, err := render(chart, map[string]any{"config": config}); err != nil {
			t.Errorf("%v: %v", config, err)
		}
	}
}

func TestThePlainManifestsAreThoseOfTheChart(t *testing.T) {
	want, err := manifests(chart, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../kubernetes/daybook.yaml")
	if err != nil || string(got) != want {
		t.Errorf("deploy/kubernetes/daybook.yaml is not current: run make manifests (%v)", err)
	}
	for object := range strings.SplitSeq(string(got), "---\n") {
		checkObject(t, "plain", object)
	}
}
