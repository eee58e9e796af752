package spare

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Program is a loaded program with its spares, if it has any.
type Program struct {
	first  *ebpf.Program
	spares []*ebpf.Program
	taken  *ebpf.Map
	number int // of the counter in taken
}

// Of returns the programs of a collection, by the names that they had before Add. They are
// the collection's until they are cloned.
func Of(collection *ebpf.Collection) map[string]Program {
	names := slices.Sorted(maps.Keys(collection.Programs))
	names = slices.DeleteFunc(names, func(name string) bool { return strings.Contains(name, suffix) })
	programs := make(map[string]Program)
	for n, name := range names {
		program := Program{first: collection.Programs[name], taken: collection.Maps[takenMap], number: n}
		for number := 1; collection.Programs[nameOf(name, number)] != nil; number++ {
			program.spares = append(program.spares, collection.Programs[nameOf(name, number)])
		}
		programs[name] = program
	}
	return programs
}

// IsOwn reports whether a map is not of the programs, but of their spares.
func IsOwn(name string) bool { return name == notesMap || name == takenMap }

// Clone returns a program that is independent of its collection.
func (p Program) Clone() (c Program, err error) {
	c = Program{number: p.number}
	if c.first, err = p.first.Clone(); err == nil && p.taken != nil {
		c.taken, err = p.taken.Clone()
	}
	for _, spare := range p.spares {
		var clone *ebpf.Program
		if err == nil {
			clone, err = spare.Clone()
			c.spares = append(c.spares, clone)
		}
	}
	if err != nil {
		return Program{}, errors.Join(fmt.Errorf("cannot hold a BPF program: %w", err), c.Close())
	}
	return c, nil
}

// Close closes a clone.
func (p Program) Close() error {
	errs := []error{p.first.Close(), p.taken.Close()}
	for _, spare := range p.spares {
		errs = append(errs, spare.Close())
	}
	return errors.Join(errs...)
}

// Tracing attaches a program as link.AttachTracing does.
func Tracing(program *ebpf.Program) (link.Link, error) {
	return link.AttachTracing(link.TracingOptions{Program: program})
}

// Raw attaches a program to a tracepoint as link.AttachRawTracepoint does.
func Raw(tracepoint string) func(*ebpf.Program) (link.Link, error) {
	return func(program *ebpf.Program) (link.Link, error) {
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint, Program: program})
	}
}

// Link is a program and its spares, attached. As a link it is that of the program.
type Link struct {
	link.Link
	spares  []link.Link
	program Program
}

// Attach attaches a program to its tracepoint, and then its spares. The kernel calls those
// of a tracepoint in this order.
func (p Program) Attach(attach func(*ebpf.Program) (link.Link, error)) (link.Link, error) {
	return p.attachInOrder(attach, false)
}

// AttachToFunction attaches a program to a function of the kernel, which calls the one first
// that was attached last.
func (p Program) AttachToFunction() (link.Link, error) { return p.attachInOrder(Tracing, true) }

func (p Program) attachInOrder(attach func(*ebpf.Program) (link.Link, error), reversed bool) (link.Link, error) {
	if len(p.spares) == 0 {
		return attach(p.first)
	}
	held, err := p.Clone()
	if err != nil {
		return nil, err
	}
	l := &Link{program: held}
	order := append([]*ebpf.Program{held.first}, held.spares...)
	if reversed {
		slices.Reverse(order)
	}
	for _, program := range order {
		attached, err := attach(program)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		if program == held.first {
			l.Link = attached
		} else {
			l.spares = append(l.spares, attached)
		}
	}
	return l, nil
}

// Close detaches all.
func (l *Link) Close() error {
	var errs []error
	for _, spare := range l.spares {
		errs = append(errs, spare.Close())
	}
	if l.Link != nil {
		errs = append(errs, l.Link.Close())
	}
	return errors.Join(append(errs, l.program.Close())...)
}

// Hold returns the program of a link, with its spares, to be attached again.
func Hold(l link.Link) (Program, error) {
	if l, ok := l.(*Link); ok {
		return l.program.Clone()
	}
	info, err := l.Info()
	if err != nil {
		return Program{}, fmt.Errorf("cannot hold a BPF program: %w", err)
	}
	program, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		return Program{}, fmt.Errorf("cannot hold a BPF program: %w", err)
	}
	return Program{first: program}, nil
}

// Spares are the links of the spares.
func (l *Link) Spares() []link.Link { return l.spares }

// Taken returns how many events the spares have had in the place of the program.
func (l *Link) Taken() (uint64, error) {
	var counters [maxPrograms]uint64
	if err := l.program.taken.Lookup(uint32(0), &counters); err != nil {
		return 0, fmt.Errorf("cannot read how often spare BPF programs were at work: %w", err)
	}
	return counters[l.program.number], nil
}
