package agent

import (
	"fmt"
	"os"
	"strings"

	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/kubetest"
)

// deployAgent applies what the chart renders, for this node; change changes the agent's
// configuration, if it is not nil. It returns the chart's ServiceMonitor, which only the
// Prometheus operator knows.
func (s *site) deployAgent(change func(config string) string) (monitor kubetest.Object) {
	s.t.Helper()
	text, err := os.ReadFile(os.Getenv(nodeManifestVariable))
	s.do(err)
	objects, err := kubetest.Objects(string(text))
	s.do(err)
	monitors, objects := kubetest.Take(objects, "ServiceMonitor")
	if len(monitors) != 1 {
		s.t.Fatalf("%d ServiceMonitors in the manifest", len(monitors))
	}
	maps, _ := kubetest.Take(objects, "ConfigMap")
	if len(maps) != 1 {
		s.t.Fatalf("%d ConfigMaps in the manifest", len(maps))
	}
	config := kubetest.Text(maps[0], "data", configKey)
	for before, after := range map[string]string{"cgroup_root: /CGROUP_ROOT\n": "cgroup_root: " + s.CgroupRoot + "\n", "cri_socket: /run/CRI_SOCKET\n": "cri_socket: " + s.Socket + "\n"} {
		if strings.Count(config, before) != 1 {
			s.t.Fatalf("the configuration has no %q:\n%s", before, config)
		}
		config = strings.Replace(config, before, after, 1)
	}
	s.config = config
	if change != nil {
		config = change(config)
	}
	maps[0]["data"] = kubetest.Object{configKey: config}
	s.do(s.API.Make(objects))
	s.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {" + NamespaceLabel + ": " + NamespaceAllowed + "}}}")
	s.Await("the agent runs", func() bool { return s.agentAddress() != "" })
	return monitors[0]
}

// configKey is the agent's configuration in its ConfigMap.
const configKey = "agent.yaml"

// volume makes a local PersistentVolume of a device, for one claim.
func (s *site) volume(namespace, name, claim, node string) {
	s.t.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  capacity: {storage: 64Mi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: disks
  claimRef: {namespace: %s, name: %s}
  local: {path: %s, fsType: ext4}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]
`, name, namespace, claim, node, kubetest.Name))
}

func claimOf(namespace, name, volume string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %s, name: %s}
spec: {storageClassName: disks, volumeName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
`, namespace, name, volume)
}

// podSpec is that of a pod that syncs.
func podSpec(claim, resources string) string {
	return fmt.Sprintf(`{
  automountServiceAccountToken: false, terminationGracePeriodSeconds: 5,
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}],
  containers: [{name: main, image: %q, imagePullPolicy: Never, command: [/bin/busybox, sh, -c, %q],
    resources: %s, volumeMounts: [{name: data, mountPath: /data}]}]}`, claim, containertest.CRIImage, writer, resources)
}

var statefulSet = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {namespace: shop, name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}, annotations: {` + Annotation + `: "300"}}
    spec: ` + podSpec("data", "{requests: {cpu: 10m}}") + `
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {storageClassName: disks, volumeName: pv-db, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
`

var deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: shop, name: noise}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: noise}}
  template:
    metadata: {labels: {app: noise}}
    spec: ` + podSpec("noise", "{}") + `
`
