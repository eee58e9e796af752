package blame

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/spare"
)

// variablesMap has the variables of the programs, which all of them share.
const variablesMap = ".bss"

// ofMemory reports whether a program uses a tracepoint of a journal in memory.
func ofMemory(program *ebpf.ProgramSpec) bool { return program.Type == ebpf.RawTracepoint }

// memoryStarts are the tracepoints of the start of a handle, of which a kernel has the
// first or the others: until 6.3 it was one.
var memoryStarts = []string{"ext4nvj_journal_start", "ext4nvj_journal_start_inode", "ext4nvj_journal_start_sb"}

// FollowNVJournal starts or ends the measurement of waits on the file systems of a
// module, which must be loaded. Meanwhile the module cannot be unloaded. It returns the
// tracepoints that the module lacks.
func (p *Probe) FollowNVJournal(module journal.NVModule, follow bool) (missing []string, err error) {
	_, followed := p.followed[module]
	if follow == followed {
		return nil, nil
	}
	if !follow {
		return nil, p.unfollow(module)
	}
	spec, err := loadPrograms()
	if err != nil {
		return nil, fmt.Errorf("cannot read the compiled BPF programs: %w", err)
	}
	maps.DeleteFunc(spec.Programs, func(_ string, program *ebpf.ProgramSpec) bool { return !module.Has(program) })
	if err := setSystemCalls(spec); err != nil {
		return nil, err
	}
	cache := btf.NewCache()
	if err := journal.AddSpares(spec, cache); err != nil {
		return nil, err
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: cache, MapReplacements: map[string]*ebpf.Map{
		"buckets": p.maps.Buckets, "held": p.maps.Held, "journals": p.maps.Journals, "lost": p.maps.Lost,
		"ordered": p.maps.Ordered, "tasks": p.maps.Tasks, "waits": p.maps.Waits, variablesMap: p.variables,
		"taken": p.maps.Taken, "ended_calls": p.maps.EndedCalls,
	}})
	if err != nil {
		return nil, fmt.Errorf("%w: cannot load the BPF programs for waits on %s: %w", journal.ErrUnsupported, module, err)
	}
	defer collection.Close()
	p.followed[module] = make([]link.Link, 0, len(collection.Programs))
	for name, program := range spare.Of(collection) {
		tracepoint := spec.Programs[name].AttachTo
		l, err := program.Attach(spare.Raw(tracepoint))
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, tracepoint)
			continue
		}
		if err != nil {
			err = fmt.Errorf("%w: cannot attach %s to the tracepoint %s: %w", journal.ErrUnsupported, name, tracepoint, err)
			return nil, errors.Join(err, p.unfollow(module))
		}
		p.followed[module] = append(p.followed[module], l)
	}
	if slices.Contains(missing, memoryStarts[0]) != slices.Contains(missing, memoryStarts[1]) {
		missing = slices.DeleteFunc(missing, func(m string) bool { return strings.HasPrefix(m, memoryStarts[0]) })
	}
	slices.Sort(missing)
	debug.FreeOSMemory()
	return missing, nil
}

func (p *Probe) unfollow(module journal.NVModule) error {
	var errs []error
	for _, l := range p.followed[module] {
		errs = append(errs, l.Close())
	}
	delete(p.followed, module)
	return errors.Join(errs...)
}
