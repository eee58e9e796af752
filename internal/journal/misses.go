package journal

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/daybook-project/daybook/internal/spare"
)

// Misses counts the events for which the kernel did not run a program, because the program
// was running on that processor already: an interrupt came into it, or, on kernels whose
// tracepoints can be preempted (7.2; include/linux/tracepoint.h), another task
// (kernel/trace/bpf_trace.c, __bpf_trace_run). Those that a spare had in its place are not
// counted. Kernels before 5.12 do not count them.
type Misses struct {
	seen map[ebpf.ProgramID]uint64
}

// Since returns the number of such events since the last call. If there are any, it attaches
// the spares of all programs.
func (m *Misses) Since(links []link.Link) (uint64, error) {
	now := make(map[ebpf.ProgramID]uint64, len(links))
	var more uint64
	for _, l := range links {
		id, count, err := missesOf(l)
		if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, fs.ErrPermission) {
			continue // not known: without CAP_SYS_ADMIN there is no program by its number
		}
		if err != nil {
			return 0, fmt.Errorf("cannot read how often the kernel skipped a BPF program: %w", err)
		}
		// A spare may have an event between the two readings.
		now[id] = max(count, m.seen[id])
		more += now[id] - m.seen[id]
	}
	m.seen = now
	if more > 0 {
		if err := spare.AttachSpares(links); err != nil {
			return 0, err
		}
	}
	return more, nil
}

// AttachSpares attaches the spares of all programs now, if they have any: not only after the
// kernel has skipped a program, which Collect notices. Without it, what is skipped before the
// first such call of Collect is lost.
func (p *Probe) AttachSpares() error { return spare.AttachSpares(p.programs.all()) }

func missesOf(l link.Link) (ebpf.ProgramID, uint64, error) {
	info, err := l.Info()
	if err != nil {
		return 0, 0, err
	}
	program, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		return 0, 0, err
	}
	defer program.Close()
	stats, err := program.Stats()
	if err != nil {
		return 0, 0, err
	}
	count := stats.RecursionMisses
	if l, ok := l.(*spare.Link); ok && count > 0 {
		taken, err := l.Taken()
		if err != nil {
			return 0, 0, err
		}
		count -= min(taken, count)
	}
	return info.Program, count, nil
}
