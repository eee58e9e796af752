package kubetest

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Object is an object of the API.
type Object = map[string]any

// API is the API server, asked by an administrator.
type API struct {
	address, token string
	client         *http.Client
}

func newAPI(address, token string) *API {
	// The certificate is the server's own, and the server is a process of this test.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	return &API{address, token, &http.Client{Transport: transport, Timeout: time.Minute}}
}

// StatusError is a refusal of the API server.
type StatusError struct {
	Code int
	Text string
}

func (e *StatusError) Error() string { return fmt.Sprintf("the API server: %d: %s", e.Code, e.Text) }

// IsNotFound says whether there is no such object.
func IsNotFound(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == http.StatusNotFound
}

func (a *API) do(method, path, kind string, body any) (Object, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(context.Background(), method, a.address+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("Content-Type", kind)
	answer, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 {
		return nil, &StatusError{answer.StatusCode, string(text[:min(len(text), 1000)])}
	}
	var object Object
	if !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json") {
		return Object{"text": string(text)}, nil
	}
	return object, json.Unmarshal(text, &object)
}

// Get reads an object or a list.
func (a *API) Get(path string) (Object, error) { return a.do("GET", path, "application/json", nil) }

// Create makes an object; path is that of its collection.
func (a *API) Create(path string, object Object) (Object, error) {
	return a.do("POST", path, "application/json", object)
}

// Patch changes fields of an object.
func (a *API) Patch(path string, fields Object) error {
	_, err := a.do("PATCH", path, "application/merge-patch+json", fields)
	return err
}

// Delete deletes an object; the answer does not wait for its end.
func (a *API) Delete(path string) error {
	_, err := a.do("DELETE", path, "application/json", nil)
	return err
}

// collections are the paths of the kinds that tests make; %s is the namespace.
var collections = map[string]string{
	"Namespace": "/api/v1/namespaces", "PersistentVolume": "/api/v1/persistentvolumes",
	"StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
	"ClusterRole":  "/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"ConfigMap": "/api/v1/namespaces/%s/configmaps", "Service": "/api/v1/namespaces/%s/services",
	"ServiceAccount": "/api/v1/namespaces/%s/serviceaccounts", "Pod": "/api/v1/namespaces/%s/pods",
	"PersistentVolumeClaim": "/api/v1/namespaces/%s/persistentvolumeclaims",
	"DaemonSet":             "/apis/apps/v1/namespaces/%s/daemonsets", "StatefulSet": "/apis/apps/v1/namespaces/%s/statefulsets",
	"Deployment": "/apis/apps/v1/namespaces/%s/deployments",
}

// Objects are those of a YAML text with several documents.
func Objects(manifest string) (objects []Object, err error) {
	decoder := yaml.NewDecoder(strings.NewReader(manifest))
	for {
		var object Object
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if object != nil {
			objects = append(objects, object)
		}
	}
}

// Apply makes the objects of a YAML text with several documents.
func (a *API) Apply(manifest string) error {
	objects, err := Objects(manifest)
	if err != nil {
		return err
	}
	return a.Make(objects)
}

// Make makes objects.
func (a *API) Make(objects []Object) error {
	for _, object := range objects {
		kind, _ := object["kind"].(string)
		path, known := collections[kind]
		if !known {
			return fmt.Errorf("kind %q: no collection is known", kind)
		}
		if strings.Contains(path, "%s") {
			namespace := Text(object, "metadata", "namespace")
			if namespace == "" {
				return fmt.Errorf("%s %s has no namespace", kind, Text(object, "metadata", "name"))
			}
			path = fmt.Sprintf(path, namespace)
		}
		if _, err := a.Create(path, object); err != nil {
			return fmt.Errorf("%s %s: %w", kind, Text(object, "metadata", "name"), err)
		}
	}
	return nil
}

// Field is a field of an object; nil if there is none.
func Field(object any, path ...string) any {
	for _, name := range path {
		inner, _ := object.(Object)
		object = inner[name]
	}
	return object
}

// Text is a field that is a text; "" if there is none.
func Text(object any, path ...string) string {
	text, _ := Field(object, path...).(string)
	return text
}

// Items are the objects of a list.
func Items(list Object) []Object {
	var items []Object
	all, _ := list["items"].([]any)
	for _, item := range all {
		if object, ok := item.(Object); ok {
			items = append(items, object)
		}
	}
	return items
}

// Condition says whether an object has a condition with the status True.
func Condition(object Object, name string) bool {
	all, _ := Field(object, "status", "conditions").([]any)
	for _, condition := range all {
		if Text(condition, "type") == name {
			return Text(condition, "status") == "True"
		}
	}
	return false
}
