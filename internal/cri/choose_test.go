package cri

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fake is a runtime with pods; with a status other than "0" it refuses all calls.
func fake(t *testing.T, status string, uids ...string) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var answer Message
	for _, uid := range uids {
		answer = answer.Inner(1, Message(nil).Text(1, "id-"+uid).Inner(2, Message(nil).Text(1, "pod").Text(2, uid).Text(3, "shop")))
	}
	server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, method := filepath.Split(r.URL.Path); method != "ListPodSandbox" {
			t.Errorf("%s is called", method)
		}
		w.Header().Set("Content-Type", "application/grpc")
		if status != "0" {
			w.Header().Set("Grpc-Status", status)
			w.Header().Set("Grpc-Message", "unknown service")
			return
		}
		_, _ = w.Write(append([]byte{0, 0, 0, byte(len(answer) >> 8), byte(len(answer))}, answer...))
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	})}
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return socket
}

// The containerd of Docker refuses calls, and one without a kubelet has no pods.
func TestTheRuntimeThatHasThePodsIsChosen(t *testing.T) {
	const unimplemented = "12"
	refuses, empty, foreign := fake(t, unimplemented), fake(t, "0"), fake(t, "0", "x", "y", "z")
	one, two := fake(t, "0", "a"), fake(t, "0", "a", "b", "b")
	closed := fake(t, "0")
	if err := os.Remove(closed); err != nil {
		t.Fatal(err)
	}
	known := func(uid string) bool { return uid == "a" || uid == "b" }
	for _, c := range []struct {
		sockets []string
		want    string
		pods    int
	}{
		{[]string{two}, two, 2},
		{[]string{refuses, two}, two, 2},
		{[]string{closed, empty, one}, one, 1},
		{[]string{foreign, one, two}, two, 2},
		{[]string{two, one}, two, 2},
		{[]string{refuses, empty, foreign}, empty, 0},
	} {
		chosen, pods, err := Choose(t.Context(), c.sockets, known)
		if err != nil {
			t.Errorf("%q: %v", c.sockets, err)
			continue
		}
		if chosen.Socket() != c.want || pods != c.pods {
			t.Errorf("%q: %s with %d pods; want %s with %d", c.sockets, chosen.Socket(), pods, c.want, c.pods)
		}
		if sandboxes, err := chosen.Sandboxes(t.Context()); err != nil || len(sandboxes) < pods {
			t.Errorf("the chosen one answers %+v, %v", sandboxes, err)
		}
	}
	_, _, err := Choose(context.Background(), []string{refuses, closed}, known)
	if err == nil || !strings.Contains(err.Error(), "unknown service") || !strings.Contains(err.Error(), closed) {
		t.Errorf("nobody answers: %v", err)
	}
}

func TestOnlySocketsThatExistAreAsked(t *testing.T) {
	socket, file := fake(t, "0"), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := existing([]string{file, "/none", socket}); err != nil || !slices.Equal(found, []string{socket}) {
		t.Errorf("%q, %v", found, err)
	}
	if _, err := existing([]string{file, "/none"}); !errors.Is(err, ErrNoSocket) || !strings.Contains(err.Error(), "/none") {
		t.Error(err)
	}
	// Where a container has only the host's /run, there is no link /var/run.
	for _, socket := range Sockets {
		if strings.HasPrefix(socket, "/var/run/") {
			t.Errorf("%s: want it in /run", socket)
		}
	}
}

// An agent chooses again and again until a runtime has pods.
func TestAClientThatIsNotUsedAnyMoreIsClosed(t *testing.T) {
	socket := fake(t, "0")
	open := func() int {
		text, err := os.ReadFile("/proc/net/unix")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), socket+"\n")
	}
	before := open()
	for range 5 {
		c, pods, err := Choose(t.Context(), []string{socket}, func(string) bool { return false })
		if err != nil || pods != 0 {
			t.Fatal(pods, err)
		}
		c.Close()
	}
	for deadline := time.Now().Add(10 * time.Second); open() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are open", open()-before)
		}
	}
}
