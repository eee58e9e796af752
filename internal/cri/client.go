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

// Sockets are the usual sockets of runtimes, in the order in which they are tried.
var Sockets = []string{
	"/run/containerd/containerd.sock",
	"/run/crio/crio.sock",
	"/run/k3s/containerd/containerd.sock",
	"/var/run/cri-dockerd.sock",
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

// Find returns a client of the first of the usual sockets that exists.
func Find() (*Client, error) {
	for _, socket := range Sockets {
		if info, err := os.Stat(socket); err == nil && info.Mode()&os.ModeSocket != 0 {
			return New(socket), nil
		}
	}
	return nil, fmt.Errorf("no socket of a container runtime: want one of %s; name another with cri_socket", strings.Join(Sockets, ", "))
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
