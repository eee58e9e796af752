package dockervolume

import "sync"

// names serializes the calls for each volume; calls on different volumes do not
// wait for each other.
type names struct {
	mu   sync.Mutex
	held map[string]*heldName
}

type heldName struct {
	sync.Mutex
	// calls is the number of calls that hold the name or wait for it.
	calls int
}

// hold waits for the name and returns the function that releases it.
func (n *names) hold(name string) (release func()) {
	n.mu.Lock()
	if n.held == nil {
		n.held = map[string]*heldName{}
	}
	h := n.held[name]
	if h == nil {
		h = &heldName{}
		n.held[name] = h
	}
	h.calls++
	n.mu.Unlock()
	h.Lock()
	return func() {
		h.Unlock()
		n.mu.Lock()
		defer n.mu.Unlock()
		if h.calls--; h.calls == 0 {
			delete(n.held, name)
		}
	}
}
