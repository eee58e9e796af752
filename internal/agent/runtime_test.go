package agent

import (
	"errors"
	"strings"
	"testing"

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
