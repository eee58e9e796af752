package dockervolume

import (
	"context"
	"fmt"
	"sync"
)

// names serializes the calls for each volume; calls on different volumes do not
// wait for each other.
type names struct {
	mu   sync.Mutex
	held map[string]*heldName
}

type heldName struct {
	// free has an element while no call holds the name.
	free chan struct{}
	// calls is the number of calls that hold the name or wait for it.
	calls int
}

// hold waits for the name and returns the function that releases it. If ctx ends before, the
// error wraps that of ctx.
func (n *names) hold(ctx context.Context, name string) (release func(), err error) {
	n.mu.Lock()
	if n.held == nil {
		n.held = map[string]*heldName{}
	}
	h := n.held[name]
	if h == nil {
		h = &heldName{free: make(chan struct{}, 1)}
		h.free <- struct{}{}
		n.held[name] = h
	}
	h.calls++
	n.mu.Unlock()
	leave := func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if h.calls--; h.calls == 0 {
			delete(n.held, name)
		}
	}
	select {
	case <-h.free:
		return func() {
			h.free <- struct{}{}
			leave()
		}, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("another call works on volume %s: %w", name, ctx.Err())
	}
}
