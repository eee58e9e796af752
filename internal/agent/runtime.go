package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/daybook-project/daybook/internal/cri"
)

// runtime is the container runtime of the kubelet.
type runtime struct {
	log *slog.Logger
	// client asks it; nil: none is chosen yet, or none is to be asked.
	client *cri.Client
	// choose: the sockets are asked which one has the pods of this kubelet, until one has.
	choose bool
	// kubeletDir has a directory for each pod.
	kubeletDir string
	// sockets are the usual ones; tests have others.
	sockets func() ([]string, error)
}

// newRuntime is the configured one, or one that is chosen among the usual sockets. The
// error wraps ErrUnsupported if none of them exists.
func newRuntime(config Config, log *slog.Logger) (runtime, error) {
	r := runtime{log: log, kubeletDir: config.KubeletDir, sockets: cri.Existing}
	switch config.CRISocket {
	case NoCRI:
	case "":
		r.choose = true
		if _, err := r.sockets(); err != nil {
			return r, fmt.Errorf("%w: a container runtime: %w", ErrUnsupported, err)
		}
	default:
		r.client = cri.New(config.CRISocket)
	}
	return r, nil
}

// hasPod says whether the kubelet has a pod.
func (r *runtime) hasPod(uid string) bool {
	if !isUID(uid) {
		return false
	}
	_, err := os.Stat(filepath.Join(r.kubeletDir, "pods", uid))
	return err == nil
}

// ask lists sandboxes and containers. asked is false if there is nobody to ask, or with an
// error.
func (r *runtime) ask(ctx context.Context) (sandboxes []cri.Sandbox, containers []cri.Container, asked bool, err error) {
	if r.choose {
		sockets, err := r.sockets()
		if err != nil {
			return nil, nil, false, err
		}
		client, pods, err := cri.Choose(ctx, sockets, r.hasPod)
		if err != nil {
			return nil, nil, false, err
		}
		if r.client != nil {
			r.client.Close()
		}
		r.client, r.choose = client, pods == 0
		if pods > 0 {
			r.log.Info("the container runtime is chosen by its pods", "socket", client.Socket(), "pods", pods)
		}
	}
	if r.client == nil {
		return nil, nil, false, nil
	}
	if sandboxes, err = r.client.Sandboxes(ctx); err == nil {
		containers, err = r.client.Containers(ctx)
	}
	return sandboxes, containers, err == nil, err
}
