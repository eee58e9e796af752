package journal

import (
	"errors"

	"github.com/daybook-project/daybook/internal/spare"
)

// holdPrograms are those for bios that io.cost holds back, each with its variant for older
// kernels (bpf/held.h). Without those that begin a wait, those that end it do nothing.
var holdPrograms = []string{"bio_released", "bio_released_of", "bio_held", "bio_held_of"}

// hold is one of them that is not attached.
type hold struct {
	tracepoint string
	program    *spare.Program
}

func (p *Probe) keepHold(name, tracepoint string, program spare.Program) error {
	h := &hold{tracepoint: tracepoint}
	if err := keep(&h.program, program); err != nil {
		return err
	}
	if p.holds == nil {
		p.holds = make(map[string]*hold)
	}
	p.holds[name] = h
	return nil
}

// ObserveHolds counts, from now on, also the time for which io.cost holds back I/O as time
// with I/O outstanding: until then that begins with the request, which a bio becomes after
// the wait. On all observed disks a wait for a free request counts, too. It costs a little time
// for each bio of any disk, so it is for hosts where io.cost divides an observed disk. Where a
// tracepoint is missing, it does nothing.
func (p *Probe) ObserveHolds() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range holdPrograms {
		h := p.holds[name]
		if h == nil {
			continue
		}
		err := p.attachKept(&h.program, name, h.tracepoint)
		if h.program == nil {
			delete(p.holds, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// forgetHolds closes the programs that were never attached.
func (p *Probe) forgetHolds() error {
	var errs []error
	for name, h := range p.holds {
		errs = append(errs, h.program.Close())
		delete(p.holds, name)
	}
	return errors.Join(errs...)
}
