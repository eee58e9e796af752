package agent

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/cri"
)

// A node without a container runtime lacks something, as one without the kubelet does: the
// command then ends with the exit code that says so.
func TestNoContainerRuntimeIsAnUnsupportedNode(t *testing.T) {
	usual := cri.Sockets
	t.Cleanup(func() { cri.Sockets = usual })
	cri.Sockets = []string{"/nonexistent/cri.sock"}
	_, err := newRuntime(Config{}, nil)
	if !errors.Is(err, ErrUnsupported) || !errors.Is(err, cri.ErrNoSocket) || !strings.Contains(err.Error(), "cri_socket: none") {
		t.Errorf("%v; want that the node is not supported, and what to do", err)
	}
	if _, err := newRuntime(Config{CRISocket: NoCRI}, nil); err != nil {
		t.Errorf("no runtime is to be asked: %v", err)
	}
}

// A node without pods is asked at each interval. A connection for each would use up all file
// descriptors.
func TestARuntimeWithoutPodsCostsOneConnection(t *testing.T) {
	w := containertest.New(t)
	if err := os.MkdirAll(w.Path("kubelet"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.StartCRI(false)
	socket := w.Path("cri.sock")
	r := runtime{log: slog.New(slog.DiscardHandler), choose: true, kubeletDir: w.Path("kubelet"), sockets: func() ([]string, error) { return []string{socket}, nil }}
	sockets := func() (open int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if target, _ := os.Readlink("/proc/self/fd/" + entry.Name()); strings.HasPrefix(target, "socket:") {
				open++
			}
		}
		return open
	}
	before := sockets()
	for range 20 {
		if _, _, asked, err := r.ask(t.Context()); err != nil || !asked || !r.choose {
			t.Fatal(asked, r.choose, err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); sockets() > before+1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are open", sockets()-before)
		}
	}
}
