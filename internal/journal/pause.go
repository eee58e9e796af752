package journal

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Pause detaches the programs from their tracepoints until resume is called. They
// stay loaded, and the maps keep their content. What happens meanwhile is in no
// account. It is for measurements of the programs' cost, not while ext4nvj is
// followed, and not safe for concurrent use with Close.
func (p *Probe) Pause() (resume func() error, err error) { return PauseLinks(&p.links) }

// PauseLinks does the same for the programs of another probe: it closes the links,
// and resume makes them again.
func PauseLinks(links *[]link.Link) (resume func() error, err error) {
	var programs []*ebpf.Program
	resume = func() error {
		var errs []error
		for _, program := range programs {
			l, err := link.AttachTracing(link.TracingOptions{Program: program})
			if err == nil {
				*links = append(*links, l)
			} else {
				errs = append(errs, fmt.Errorf("cannot attach a BPF program again: %w", err))
			}
			errs = append(errs, program.Close())
		}
		programs = nil
		return errors.Join(errs...)
	}
	for _, l := range *links {
		info, err := l.Info()
		if err == nil {
			var program *ebpf.Program
			if program, err = ebpf.NewProgramFromID(info.Program); err == nil {
				programs = append(programs, program)
			}
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot hold a BPF program: %w", err), closePrograms(programs))
		}
	}
	err = closeAll(*links)
	*links = nil
	return resume, err
}

func closePrograms(programs []*ebpf.Program) error {
	var errs []error
	for _, program := range programs {
		errs = append(errs, program.Close())
	}
	return errors.Join(errs...)
}
