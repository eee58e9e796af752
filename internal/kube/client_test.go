package kube

import (
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The server of this test answers as the API server does; make k8s-test asks a real one.
func serve(t *testing.T, answers map[string]string) *Client {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		// From the server's cache. It refuses a version beside the place in a list.
		if r.URL.Query().Has("continue") == r.URL.Query().Has("resourceVersion") || !r.URL.Query().Has("continue") && r.URL.Query().Get("resourceVersion") != "0" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		path := r.URL.Path
		if after := r.URL.Query().Get("continue"); after != "" {
			path += "?" + after
		}
		answer, known := answers[path]
		switch {
		case !known:
			w.WriteHeader(http.StatusNotFound)
		case strings.HasPrefix(answer, "forbidden"):
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind": "Status", "message": "` + answer + `"}`))
		default:
			_, _ = w.Write([]byte(answer))
		}
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "ca.crt"), authority, 0o600), os.WriteFile(filepath.Join(dir, "token"), []byte("secret\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(at.Host)
	if err != nil {
		t.Fatal(err)
	}
	c, err := inCluster(host, port, dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhatTheAPIServerKnowsOfVolumesAndNamespaces(t *testing.T) {
	c := serve(t, map[string]string{
		"/api/v1/namespaces":                                          `{"metadata": {"continue": "2"}, "items": [{"metadata": {"name": "a"}}]}`,
		"/api/v1/namespaces?2":                                        `{"metadata": {}, "items": [{"metadata": {"name": "b"}}]}`,
		"/api/v1/persistentvolumes/pv":                                `{"spec": {"storageClassName": "fast", "volumeAttributesClassName": "gold"}}`,
		"/api/v1/persistentvolumes/secret":                            `forbidden: no`,
		"/apis/storage.k8s.io/v1/storageclasses/fast":                 `{"metadata": {"annotations": {"x": "1"}}}`,
		"/apis/storage.k8s.io/v1beta1/volumeattributesclasses/silver": `{"metadata": {"annotations": {"x": "2"}}}`,
	})
	ctx := t.Context()
	if names, err := c.Namespaces(ctx, "l", "v"); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("%q, %v", names, err)
	}
	if classes, found, err := c.Volume(ctx, "pv"); err != nil || !found || classes != (Classes{"fast", "gold"}) {
		t.Errorf("%+v, %t, %v", classes, found, err)
	}
	if _, found, err := c.Volume(ctx, "none"); err != nil || found {
		t.Errorf("a missing volume: %t, %v", found, err)
	}
	if _, _, err := c.Volume(ctx, "secret"); err == nil || !strings.Contains(err.Error(), "403: forbidden: no") {
		t.Errorf("a refusal: %v", err)
	}
	if a, err := c.StorageClass(ctx, "fast"); err != nil || a["x"] != "1" {
		t.Errorf("%v, %v", a, err)
	}
	if a, err := c.AttributesClass(ctx, "silver"); err != nil || a["x"] != "2" {
		t.Errorf("a class of an older version: %v, %v", a, err)
	}
	if a, err := c.AttributesClass(ctx, "none"); err != nil || a != nil {
		t.Errorf("a missing class: %v, %v", a, err)
	}
}

func TestOutsideOfAPodThereIsNoAPIServer(t *testing.T) {
	if _, err := inCluster("10.0.0.1", "443", t.TempDir()); !errors.Is(err, ErrNotInCluster) {
		t.Error(err)
	}
	if _, err := inCluster("", "", t.TempDir()); !errors.Is(err, ErrNotInCluster) {
		t.Error(err)
	}
}
