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
	h := n.join(name)
	select {
	case <-h.free:
		return n.releasing(name, h), nil
	case <-ctx.Done():
		n.leave(name, h)
		return nil, fmt.Errorf("another call works on volume %s: %w", name, ctx.Err())
	}
}

// tryHold is hold that does not wait; release is nil if a call holds the name.
func (n *names) tryHold(name string) (release func()) {
	h := n.join(name)
	select {
	case <-h.free:
		return n.releasing(name, h)
	default:
		n.leave(name, h)
		return nil
	}
}

func (n *names) join(name string) *heldName {
	n.mu.Lock()
	defer n.mu.Unlock()
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
	return h
}

func (n *names) leave(name string, h *heldName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.calls--; h.calls == 0 {
		delete(n.held, name)
	}
}

func (n *names) releasing(name string, h *heldName) func() {
	return func() {
		h.free <- struct{}{}
		n.leave(name, h)
	}
}
