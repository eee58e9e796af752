package journal

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/daybook-project/daybook/internal/spare"
)

// Pause detaches the programs from their tracepoints until resume is called. They
// stay loaded, and the maps keep their content. What happens meanwhile is in no
// account. It is for measurements of the programs' cost, not while a journal in
// memory is followed, and not safe for concurrent use with Close.
func (p *Probe) Pause() (resume func() error, err error) { return p.programs.Pause() }

// Pause closes the links until resume is called, which makes them again.
func (p *Programs) Pause() (resume func() error, err error) {
	var programs []spare.Program
	resume = func() error {
		var errs []error
		for _, program := range programs {
			l, err := program.Attach(spare.Tracing)
			if err == nil {
				p.links = append(p.links, l)
			} else {
				errs = append(errs, fmt.Errorf("cannot attach a BPF program again: %w", err))
			}
			errs = append(errs, program.Close())
		}
		programs = nil
		return errors.Join(errs...)
	}
	for _, l := range p.links {
		program, err := spare.Hold(l)
		if err != nil {
			for _, program := range programs {
				err = errors.Join(err, program.Close())
			}
			return nil, err
		}
		programs = append(programs, program)
	}
	err = closeAll(p.links)
	p.links = nil
	return resume, err
}

// Placeholders are programs that do nothing, on the tracepoints of a probe. They show
// what only calling a program costs.
type Placeholders struct {
	programs []*ebpf.Program
	links    []link.Link
}

// Placeholders are those of the probe's programs.
func (p *Probe) Placeholders() (*Placeholders, error) { return p.programs.Placeholders() }

// Placeholders loads a program that does nothing for each program that is attached.
func (p *Programs) Placeholders() (*Placeholders, error) {
	h := new(Placeholders)
	for _, tracepoint := range p.tracepoints {
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: tracepoint, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot load an empty BPF program: %w", err), h.Close())
		}
		h.programs = append(h.programs, program)
	}
	return h, nil
}

// Attach attaches the programs until detach is called.
func (h *Placeholders) Attach() (detach func() error, err error) {
	detach = func() error {
		err := closeAll(h.links)
		h.links = nil
		return err
	}
	for _, program := range h.programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot attach an empty BPF program: %w", err), detach())
		}
		h.links = append(h.links, l)
	}
	return detach, nil
}

// Close ends the programs.
func (h *Placeholders) Close() error {
	return errors.Join(closeAll(h.links), closePrograms(h.programs))
}

func closePrograms(programs []*ebpf.Program) error {
	var errs []error
	for _, program := range programs {
		errs = append(errs, program.Close())
	}
	return errors.Join(errs...)
}
