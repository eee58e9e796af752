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

// Link is an attached program, perhaps with its spares. As a link it is that of the program.
type Link struct {
	link.Link
	attach  func(*ebpf.Program) (link.Link, error)
	spares  []link.Link
	program Program
}

// Attach attaches a program to its tracepoint. [AttachSpares] attaches its spares: the kernel
// calls the programs of a tracepoint in the order in which they were attached.
func (p Program) Attach(attach func(*ebpf.Program) (link.Link, error)) (link.Link, error) {
	if len(p.spares) == 0 {
		return attach(p.first)
	}
	l, err := p.held(attach)
	if err != nil {
		return nil, err
	}
	if l.Link, err = attach(l.program.first); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// AttachToFunction attaches a program to a function of the kernel, with its spares. A function
// calls the one first that was attached last.
func (p Program) AttachToFunction() (link.Link, error) {
	if len(p.spares) == 0 {
		return Tracing(p.first)
	}
	l, err := p.held(Tracing)
	if err != nil {
		return nil, err
	}
	slices.Reverse(l.program.spares)
	if err = l.attachSpares(); err == nil {
		l.Link, err = Tracing(l.program.first)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// held is a link with programs of its own, of which none is attached.
func (p Program) held(attach func(*ebpf.Program) (link.Link, error)) (*Link, error) {
	held, err := p.Clone()
	if err != nil {
		return nil, err
	}
	return &Link{attach: attach, program: held}, nil
}

// AttachSpares attaches the spares, if they are not yet, of all links that have some.
func AttachSpares(links []link.Link) error {
	for _, l := range links {
		if l, ok := l.(*Link); ok {
			if err := l.attachSpares(); err != nil {
				return fmt.Errorf("cannot attach a spare BPF program: %w", err)
			}
		}
	}
	return nil
}

func (l *Link) attachSpares() error {
	for _, spare := range l.program.spares[len(l.spares):] {
		attached, err := l.attach(spare)
		if err != nil {
			return err
		}
		l.spares = append(l.spares, attached)
	}
	return nil
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

// Hold returns the program of a link to be attached again, with its spares in reserve.
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

// Spares are the links of the spares that are attached.
func (l *Link) Spares() []link.Link { return l.spares }

// Taken returns how many events the spares have had in the place of the program.
func (l *Link) Taken() (uint64, error) {
	var counters [maxPrograms]uint64
	if err := l.program.taken.Lookup(uint32(0), &counters); err != nil {
		return 0, fmt.Errorf("cannot read how often spare BPF programs were at work: %w", err)
	}
	return counters[l.program.number], nil
}
