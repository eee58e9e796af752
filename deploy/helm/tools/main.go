// Command tools renders the Helm chart beside it into plain manifests:
//
//	go run . ../daybook >../../kubernetes/daybook.yaml
//	go run . ../daybook config.apiServer=true config.cgroupRoot=/x	# with values
//
// Its test validates the chart: the schema of values, and every rendered object against the
// types of the Kubernetes API and of the Prometheus operator. It is a module of its own,
// because Helm needs some 150 modules.
package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: tools CHART [NAME=VALUE]...")
		os.Exit(2)
	}
	values := map[string]any{}
	for _, value := range os.Args[2:] {
		if err := strvals.ParseInto(value, values); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	text, err := manifests(os.Args[1], values)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(text)
}

// namespace and release are those of the plain manifests.
const (
	namespace = "daybook"
	release   = "daybook"
)

// manifests is the chart with values over its own, and its namespace, as one file.
func manifests(chart string, values map[string]any) (string, error) {
	objects, err := render(chart, values)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString(`# Made from deploy/helm/daybook by "make manifests"; do not edit.
apiVersion: v1
kind: Namespace
metadata:
  name: ` + namespace + `
  labels:
    pod-security.kubernetes.io/enforce: privileged
`)
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		out.WriteString("---\n" + strings.TrimSpace(objects[name]) + "\n")
	}
	// Nothing of Helm is in plain manifests.
	return strings.ReplaceAll(out.String(), "    app.kubernetes.io/managed-by: Helm\n", ""), nil
}

// render renders a chart with values over its own. The result is by the names of the
// templates; those that render to nothing, and the notes, are left out.
func render(dir string, values map[string]any) (map[string]string, error) {
	return renderIn(namespace, release, dir, values)
}

func renderIn(namespace, release, dir string, values map[string]any) (map[string]string, error) {
	chart, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return nil, err
	}
	objects := map[string]string{}
	for name, text := range rendered {
		if strings.TrimSpace(text) != "" && path.Ext(name) == ".yaml" {
			objects[path.Base(name)] = text
		}
	}
	return objects, nil
}
