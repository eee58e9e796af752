package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// accountDir is where the kubelet puts the token of the pod's service account.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// maxAnswerBytes bounds an answer; a page of a list is far smaller.
const maxAnswerBytes = 16 << 20

// pageItems is how many objects of a list are asked for at once.
const pageItems = 500

// timeout bounds one request.
const timeout = 5 * time.Second

// ErrNotInCluster means that the process is not in a pod with a service account.
var ErrNotInCluster = errors.New("no API server is known: the pod has no token of a service account, or this is no pod (automountServiceAccountToken: true)")

// Client asks one API server.
type Client struct {
	base, tokenFile string
	http            *http.Client
}

// InCluster returns a client of the API server of the cluster whose pod this is.
func InCluster() (*Client, error) {
	return inCluster(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"), accountDir)
}

func inCluster(host, port, dir string) (*Client, error) {
	authority, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if host == "" || port == "" || errors.Is(err, os.ErrNotExist) {
		return nil, ErrNotInCluster
	}
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s/ca.crt has no certificate", dir)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return &Client{"https://" + net.JoinHostPort(host, port), filepath.Join(dir, "token"), &http.Client{Transport: transport, Timeout: timeout}}, nil
}

// statusError is a refusal of the API server.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the API server answers %d: %s", e.code, e.text)
}

// isNotFound says whether an object, or its kind, does not exist.
func isNotFound(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.code == http.StatusNotFound
}

// anyVersion of an object is one that the API server has in its cache; it then does not ask its
// store. It may be a little old.
const anyVersion = "0"

// object reads an object of a collection.
func (c *Client) object(ctx context.Context, collection, name string, into any) error {
	return c.get(ctx, collection+url.PathEscape(name)+"?resourceVersion="+anyVersion, into)
}

// get reads an object or a list.
func (c *Client) get(ctx context.Context, path string, into any) error {
	// The kubelet replaces the token before it expires.
	token, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Accept", "application/json")
	answer, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		var status struct{ Message string }
		if json.Unmarshal(text, &status) != nil || status.Message == "" {
			status.Message = http.StatusText(answer.StatusCode)
		}
		return &statusError{answer.StatusCode, fmt.Sprintf("%.300s", status.Message)}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: the answer of the API server: %w", path, err)
	}
	return nil
}

type metadata struct {
	Name        string            `json:"name"`
	Annotations map[string]string `json:"annotations"`
}

// Namespaces are the names of the namespaces with a label.
func (c *Client) Namespaces(ctx context.Context, label, value string) (names []string, err error) {
	query := url.Values{"labelSelector": {label + "=" + value}, "limit": {fmt.Sprint(pageItems)}, "resourceVersion": {anyVersion}}
	for {
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []struct {
				Metadata metadata `json:"metadata"`
			} `json:"items"`
		}
		if err := c.get(ctx, "/api/v1/namespaces?"+query.Encode(), &page); err != nil {
			return nil, fmt.Errorf("cannot list the namespaces with the label %s: %w", label, err)
		}
		for _, item := range page.Items {
			names = append(names, item.Metadata.Name)
		}
		if page.Metadata.Continue == "" {
			return names, nil
		}
		query.Set("continue", page.Metadata.Continue)
		query.Del("resourceVersion") // the place says which
	}
}

// Classes are the classes of a PersistentVolume; "" for none.
type Classes struct{ Storage, Attributes string }

// Volume reads the classes of a PersistentVolume. found is false if there is none of that
// name.
func (c *Client) Volume(ctx context.Context, name string) (classes Classes, found bool, err error) {
	var volume struct {
		Spec struct {
			StorageClassName          string `json:"storageClassName"`
			VolumeAttributesClassName string `json:"volumeAttributesClassName"`
		} `json:"spec"`
	}
	err = c.object(ctx, "/api/v1/persistentvolumes/", name, &volume)
	if isNotFound(err) {
		return Classes{}, false, nil
	}
	if err != nil {
		return Classes{}, false, fmt.Errorf("cannot read the PersistentVolume %s: %w", name, err)
	}
	return Classes{volume.Spec.StorageClassName, volume.Spec.VolumeAttributesClassName}, true, nil
}

// StorageClass reads the annotations of a StorageClass; none if it does not exist.
func (c *Client) StorageClass(ctx context.Context, name string) (map[string]string, error) {
	return c.class(ctx, "StorageClass", name, "/apis/storage.k8s.io/v1/storageclasses/")
}

// AttributesClass reads the annotations of a VolumeAttributesClass; none if it does not
// exist, or if the cluster knows no such classes.
func (c *Client) AttributesClass(ctx context.Context, name string) (map[string]string, error) {
	// v1 from Kubernetes 1.34 on.
	return c.class(ctx, "VolumeAttributesClass", name, "/apis/storage.k8s.io/v1/volumeattributesclasses/", "/apis/storage.k8s.io/v1beta1/volumeattributesclasses/")
}

func (c *Client) class(ctx context.Context, kind, name string, collections ...string) (map[string]string, error) {
	for _, collection := range collections {
		var object struct {
			Metadata metadata `json:"metadata"`
		}
		err := c.object(ctx, collection, name, &object)
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the %s %s: %w", kind, name, err)
		}
		return object.Metadata.Annotations, nil
	}
	return nil, nil
}
