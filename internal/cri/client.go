package cri

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Sockets are the usual sockets of runtimes, in the order in which they are tried. Paths in
// /var/run are written with /run: a container in which the host's /run is mounted has no link.
var Sockets = []string{
	"/run/containerd/containerd.sock",
	"/run/crio/crio.sock",
	"/run/k3s/containerd/containerd.sock", // k3s and RKE2
	"/run/k0s/containerd.sock",
	"/run/cri-dockerd.sock",
	"/var/snap/microk8s/common/run/containerd.sock",
}

// Limits of a call.
const (
	// callPatience bounds a call that has no deadline.
	callPatience = 10 * time.Second
	// maxMessageBytes bounds an answer, as gRPC clients of the kubelet do (16 MiB).
	maxMessageBytes = 16 << 20
	// prefixBytes is the prefix of a gRPC message: compressed or not, and its length.
	prefixBytes = 5
)

// Error is an error that the runtime reports.
type Error struct {
	Method string
	// Code is that of gRPC, such as 5 for "not found".
	Code    string
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("the container runtime refuses %s: %s (gRPC code %s)", e.Method, e.Message, e.Code)
}

// IsNotFound says that the runtime does not know the pod or container.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == "5"
}

// Client calls one runtime. It is safe for concurrent use.
type Client struct {
	socket string
	http   *http.Client
}

// ErrNoSocket means that no container runtime has one of the sockets.
var ErrNoSocket = errors.New("no socket of a container runtime")

// Existing are the usual sockets that exist. The error wraps ErrNoSocket if there is none.
func Existing() ([]string, error) { return existing(Sockets) }

func existing(sockets []string) (found []string, err error) {
	for _, socket := range sockets {
		if info, err := os.Stat(socket); err == nil && info.Mode()&os.ModeSocket != 0 {
			found = append(found, socket)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: want one of %s; name another with cri_socket, or ask none (cri_socket: none)", ErrNoSocket, strings.Join(sockets, ", "))
	}
	return found, nil
}

// Choose returns a client of the runtime that has the most of the pods that known knows, and
// how many those are. A node can have several runtimes: that of Docker, for example, refuses
// all calls, or has no pods. Of runtimes with equally many it is the first that answers. The
// error is that of all sockets, if none answers.
func Choose(ctx context.Context, sockets []string, known func(uid string) bool) (chosen *Client, pods int, err error) {
	var failures []error
	for _, socket := range sockets {
		c := New(socket)
		sandboxes, err := c.Sandboxes(ctx)
		if err != nil {
			failures = append(failures, err)
			c.Close()
			continue
		}
		uids := map[string]bool{}
		for _, s := range sandboxes {
			if known(s.UID) {
				uids[s.UID] = true
			}
		}
		switch {
		case chosen == nil || len(uids) > pods:
			if chosen != nil {
				chosen.Close()
			}
			chosen, pods = c, len(uids)
		default:
			c.Close()
		}
	}
	if chosen == nil {
		return nil, 0, errors.Join(failures...)
	}
	return chosen, pods, nil
}

// New returns a client of the runtime that listens on a unix socket. It connects when it is
// first used, and again when the connection is lost.
func New(socket string) *Client {
	socket = strings.TrimPrefix(socket, "unix://")
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		Protocols: new(http.Protocols),
		HTTP2:     &http.HTTP2Config{},
	}
	transport.Protocols.SetUnencryptedHTTP2(true) // gRPC over a socket begins with HTTP/2
	return &Client{socket: socket, http: &http.Client{Transport: transport}}
}

// Close closes the connection. The client connects again if it is used.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Socket is the path of the runtime's socket.
func (c *Client) Socket() string { return c.socket }

// Call calls a method of runtime.v1.RuntimeService with an encoded message, and returns the
// encoded answer.
func (c *Client) Call(ctx context.Context, method string, request []byte) ([]byte, error) {
	return c.call(ctx, "runtime.v1.RuntimeService", method, request)
}

func (c *Client) call(ctx context.Context, service, method string, request []byte) ([]byte, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callPatience)
		defer cancel()
	}
	body := make([]byte, prefixBytes, prefixBytes+len(request))
	binary.BigEndian.PutUint32(body[1:], uint32(len(request)))
	body = append(body, request...)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/"+service+"/"+method, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	answer, err := c.http.Do(r)
	if err != nil {
		var failure *url.Error
		if errors.As(err, &failure) {
			err = failure.Err
		}
		return nil, fmt.Errorf("cannot ask the container runtime at %s: %w", c.socket, err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(io.LimitReader(answer.Body, maxMessageBytes+prefixBytes+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read the answer of the container runtime at %s: %w", c.socket, err)
	}
	// An error without a message comes in the headers.
	status := answer.Trailer.Get("Grpc-Status") + answer.Header.Get("Grpc-Status")
	if status != "0" {
		message := answer.Trailer.Get("Grpc-Message") + answer.Header.Get("Grpc-Message")
		if text, err := url.PathUnescape(message); err == nil {
			message = text
		}
		if status == "" {
			message, status = "HTTP status "+answer.Status, "none"
		}
		return nil, &Error{Method: method, Code: status, Message: message}
	}
	if len(content) < prefixBytes || content[0] != 0 || uint64(binary.BigEndian.Uint32(content[1:])) != uint64(len(content)-prefixBytes) {
		return nil, fmt.Errorf("the container runtime at %s answers %s with %d bytes that are no gRPC message", c.socket, method, len(content))
	}
	return content[prefixBytes:], nil
}
