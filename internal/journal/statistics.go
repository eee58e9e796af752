package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/spare"
)

// ProgramStatistics are the runs of a BPF program while the kernel counted.
type ProgramStatistics struct {
	Program string
	// Runs is the number of runs. Nanoseconds is their total time, including
	// the kernel's own clock reading, see Counting.
	Runs, Nanoseconds uint64
}

// Counting makes the kernel count the runs of BPF programs until it is closed.
type Counting struct {
	counting io.Closer
	empty    *ebpf.Program
	link     link.Link
}

// CountPrograms starts counting; since kernel 5.8. All BPF programs on the host
// become a little slower.
func CountPrograms() (*Counting, error) {
	counting, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, fmt.Errorf("%w: cannot count the runs of BPF programs: %w", ErrUnsupported, err)
	}
	c := &Counting{counting: counting}
	c.empty, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err == nil {
		c.link, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: "jbd2_handle_stats", Program: c.empty})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot attach an empty BPF program: %w", err), c.Close())
	}
	return c, nil
}

// ClockNanoseconds is the time that counting adds to each run: the mean time of
// an empty program, run at each jbd2 handle. It is 0 if no handle stopped yet.
func (c *Counting) ClockNanoseconds() (float64, error) {
	stats, err := c.empty.Stats()
	if err != nil {
		return 0, fmt.Errorf("cannot read the state of a BPF program: %w", err)
	}
	if stats.RunCount == 0 {
		return 0, nil
	}
	return float64(stats.Runtime) / float64(stats.RunCount), nil
}

// Close ends the counting.
func (c *Counting) Close() error {
	var errs []error
	if c.link != nil {
		errs = append(errs, c.link.Close())
	}
	if c.empty != nil {
		errs = append(errs, c.empty.Close())
	}
	return errors.Join(append(errs, c.counting.Close())...)
}

// Statistics returns the runs of the attribution's programs, by name.
func (p *Probe) Statistics() ([]ProgramStatistics, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.programs.Statistics()
}

// Statistics returns the runs of the programs that count calls, by name.
func (p *CallProbe) Statistics() ([]ProgramStatistics, error) { return linkStatistics(p.links) }

// linkStatistics returns the runs of the programs of links, by name. The time of a program's
// spares is in that of the program.
func linkStatistics(links []link.Link) ([]ProgramStatistics, error) {
	seen := make(map[ebpf.ProgramID]ProgramStatistics)
	for _, l := range links {
		info, err := l.Info()
		if err != nil {
			return nil, fmt.Errorf("cannot read the state of a BPF program: %w", err)
		}
		if _, ok := seen[info.Program]; ok {
			continue // one program on several tracepoints
		}
		if seen[info.Program], err = programStatistics(info.Program); err != nil {
			return nil, fmt.Errorf("cannot read the state of a BPF program: %w", err)
		}
		if l, ok := l.(*spare.Link); ok {
			if err := addSpares(seen, info.Program, l); err != nil {
				return nil, fmt.Errorf("cannot read the state of a BPF program: %w", err)
			}
		}
	}
	all := make([]ProgramStatistics, 0, len(seen))
	for _, s := range seen {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b ProgramStatistics) int { return cmp.Compare(a.Program, b.Program) })
	return all, nil
}

// addSpares adds the time of a program's spares, and the runs in which they had an event in
// the program's place.
func addSpares(seen map[ebpf.ProgramID]ProgramStatistics, first ebpf.ProgramID, l *spare.Link) error {
	sum := seen[first]
	for _, of := range l.Spares() {
		info, err := of.Info()
		if err != nil {
			return err
		}
		counted, err := programStatistics(info.Program)
		if err != nil {
			return err
		}
		sum.Nanoseconds += counted.Nanoseconds
	}
	taken, err := l.Taken()
	if err != nil {
		return err
	}
	sum.Runs += taken
	seen[first] = sum
	return nil
}

func programStatistics(id ebpf.ProgramID) (s ProgramStatistics, err error) {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, program.Close()) }()
	info, err := program.Info()
	if err != nil {
		return s, err
	}
	functions, err := info.FuncInfos()
	if err != nil {
		return s, err
	}
	s.Program = info.Name
	if len(functions) > 0 {
		s.Program = functions[0].Func.Name // the other name is truncated to 15 characters
	}
	counted, err := program.Stats()
	if err != nil {
		return s, err
	}
	s.Runs, s.Nanoseconds = counted.RunCount, uint64(counted.Runtime)
	return s, nil
}
