package dockervolume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/daybook-project/daybook/volume"
)

// contentType is the content type that engines expect.
const contentType = "application/vnd.docker.plugins.v1.1+json"

const (
	// maxRequestBytes bounds a request; the longest is Create with labels.
	maxRequestBytes = 1 << 20
	// maxCalls is the number of calls at a time; further ones wait.
	maxCalls = 32
	// maxCallTime limits one call. The longest is Create of a large volume with
	// provision=full; Docker itself waits two minutes, podman less.
	maxCallTime = time.Hour
)

// The requests and answers of the protocol. An empty Err is success.
type (
	createRequest struct {
		Name string
		Opts map[string]string
	}
	nameRequest struct{ Name string }
	useRequest  struct{ Name, ID string }

	errorAnswer    struct{ Err string }
	activateAnswer struct{ Implements []string }
	pathAnswer     struct{ Mountpoint, Err string }
	getAnswer      struct {
		Volume info
		Err    string
	}
	listAnswer struct {
		Volumes []info
		Err     string
	}
	capabilitiesAnswer struct{ Capabilities struct{ Scope string } }
)

// handler serves a driver's calls.
func (d *driver) handler() http.Handler {
	mux := http.NewServeMux()
	places := make(chan struct{}, maxCalls)
	serve := func(name string, answer func(ctx context.Context, body io.Reader) (any, error)) {
		mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), maxCallTime)
			defer cancel()
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
			case <-ctx.Done():
				return // nobody waits for the answer
			}
			value, err := answer(ctx, http.MaxBytesReader(w, r.Body, maxRequestBytes))
			w.Header().Set("Content-Type", contentType)
			if err != nil {
				level := slog.LevelWarn
				if errors.Is(err, volume.ErrNotFound) {
					level = slog.LevelDebug // engines ask before they create
				}
				d.log.Log(ctx, level, "refused", "call", name, "why", err)
				// podman reads the error only with such a status.
				w.WriteHeader(http.StatusInternalServerError)
				value = errorAnswer{Err: err.Error()}
			}
			_ = json.NewEncoder(w).Encode(value) // the engine may be gone
		})
	}
	serve("Plugin.Activate", func(context.Context, io.Reader) (any, error) {
		return activateAnswer{Implements: []string{"VolumeDriver"}}, nil
	})
	serve("VolumeDriver.Capabilities", func(context.Context, io.Reader) (any, error) {
		answer := capabilitiesAnswer{}
		answer.Capabilities.Scope = "local"
		return answer, nil
	})
	serve("VolumeDriver.Create", call(func(ctx context.Context, q createRequest) (any, error) {
		return errorAnswer{}, d.create(ctx, q.Name, q.Opts)
	}))
	serve("VolumeDriver.Remove", call(func(ctx context.Context, q nameRequest) (any, error) {
		return errorAnswer{}, d.remove(ctx, q.Name)
	}))
	serve("VolumeDriver.Mount", call(func(ctx context.Context, q useRequest) (any, error) {
		mountpoint, err := d.mount(ctx, q.Name, q.ID)
		return pathAnswer{Mountpoint: mountpoint}, err
	}))
	serve("VolumeDriver.Unmount", call(func(ctx context.Context, q useRequest) (any, error) {
		return errorAnswer{}, d.unmount(ctx, q.Name, q.ID)
	}))
	serve("VolumeDriver.Path", call(func(ctx context.Context, q nameRequest) (any, error) {
		mountpoint, err := d.path(ctx, q.Name)
		return pathAnswer{Mountpoint: mountpoint}, err
	}))
	serve("VolumeDriver.Get", call(func(ctx context.Context, q nameRequest) (any, error) {
		found, err := d.get(ctx, q.Name)
		return getAnswer{Volume: found}, err
	}))
	serve("VolumeDriver.List", func(context.Context, io.Reader) (any, error) {
		all, err := d.list()
		return listAnswer{Volumes: all}, err
	})
	return mux
}

// call reads a request. It ignores unknown fields of a later protocol.
func call[Request any](do func(context.Context, Request) (any, error)) func(context.Context, io.Reader) (any, error) {
	return func(ctx context.Context, body io.Reader) (any, error) {
		var request Request
		if err := json.NewDecoder(body).Decode(&request); err != nil {
			return nil, fmt.Errorf("cannot read the request: %w", err)
		}
		return do(ctx, request)
	}
}
