package vmtest

import (
	"slices"
	"sync"

	"github.com/daybook-project/daybook/vm"
)

// maxShared is the maximum number of guests that wait for their next test: one
// for each kernel of the matrix. They end with the process.
const maxShared = 2

// pool keeps booted guests. Only one test at a time uses guests, because others
// would share the host's processors and the guest's state.
type pool struct {
	busy    sync.Mutex
	waiting []shared // the least recently used first
}

type shared struct {
	key     string
	machine *vm.Machine
}

var guests pool

// take returns a guest, a waiting one or one that it boots, and a function that releases
// it; good means that other tests can use it.
func (p *pool) take(key string, fresh bool, boot func() (*vm.Machine, error)) (*vm.Machine, func(good bool), error) {
	p.busy.Lock()
	m := p.find(key)
	if m == nil || fresh {
		p.shrink(maxShared - 1)
		var err error
		if m, err = boot(); err != nil {
			p.busy.Unlock()
			return nil, nil, err
		}
	} else {
		p.waiting = slices.DeleteFunc(p.waiting, func(s shared) bool { return s.machine == m })
	}
	return m, func(good bool) {
		defer p.busy.Unlock()
		if fresh || !good || m.Err() != nil {
			m.Close()
			return
		}
		p.waiting = append(p.waiting, shared{key, m})
		p.shrink(maxShared)
	}, nil
}

func (p *pool) find(key string) *vm.Machine {
	for _, s := range p.waiting {
		if s.key == key && s.machine.Err() == nil {
			return s.machine
		}
	}
	return nil
}

// shrink ends the least recently used guests.
func (p *pool) shrink(size int) {
	for len(p.waiting) > size {
		p.waiting[0].machine.Close()
		p.waiting = p.waiting[1:]
	}
}
