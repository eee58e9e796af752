package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/daybook-project/daybook/internal/spare"
)

// Programs are the attached programs of a probe, of this package or another one. They are
// not safe for concurrent use.
type Programs struct {
	links []link.Link
	// tracepoints are those of links.
	tracepoints []string
	followed    map[NVModule][]link.Link // of the modules that are followed
	misses      Misses
}

// Prepare removes the programs of spec that this kernel cannot run, and those for the
// modules with a journal in memory, which [Programs.Follow] loads. It adds the spares of the
// others. missing are the tracepoints that are left without a program. Errors about the host
// wrap ErrUnsupported, also if a required tracepoint is missing and no such module is
// loaded. Variants of a program have the names of this package's.
func Prepare(spec *ebpf.CollectionSpec, cache *btf.Cache, required []string) (missing []string, err error) {
	if err := CheckOperations(cache); err != nil {
		return nil, err
	}
	maps.DeleteFunc(spec.Programs, func(_ string, program *ebpf.ProgramSpec) bool { return ofNVJournal(program) })
	if missing, err = dropUnattachable(spec, cache, required); err != nil {
		return nil, err
	}
	return missing, AddSpares(spec, cache)
}

// AddSpares adds the spares of each program, on a kernel that skips a program where a task was
// preempted in it.
func AddSpares(spec *ebpf.CollectionSpec, cache *btf.Cache) error {
	kernel, err := cache.Kernel()
	if err != nil {
		return fmt.Errorf("%w: cannot read the kernel's BTF: %w", ErrUnsupported, err)
	}
	preemptible, err := spare.Preemptible(kernel)
	if err != nil || !preemptible {
		return err
	}
	return spare.Add(spec)
}

// Attach attaches a program to its tracepoint.
func (p *Programs) Attach(name, tracepoint string, program spare.Program) error {
	l, err := program.Attach(spare.Tracing)
	if err != nil {
		return fmt.Errorf("%w: cannot attach %s to the tracepoint %s: %w", ErrUnsupported, name, tracepoint, err)
	}
	p.links = append(p.links, l)
	p.tracepoints = append(p.tracepoints, tracepoint)
	return nil
}

// Follows reports whether the programs for a module are attached.
func (p *Programs) Follows(module NVModule) bool {
	_, followed := p.followed[module]
	return followed
}

// Follow attaches the programs of spec that are for a module, which must be loaded. They use
// the given maps. Meanwhile the module cannot be unloaded. It returns the tracepoints that
// the module lacks.
func (p *Programs) Follow(module NVModule, spec *ebpf.CollectionSpec, use map[string]*ebpf.Map) (missing []string, err error) {
	maps.DeleteFunc(spec.Programs, func(_ string, program *ebpf.ProgramSpec) bool { return !module.Has(program) })
	cache := btf.NewCache()
	if err := AddSpares(spec, cache); err != nil {
		return nil, err
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: use, Cache: cache})
	if err != nil {
		return nil, fmt.Errorf("%w: cannot load the BPF programs for %s: %w", ErrUnsupported, module, err)
	}
	defer collection.Close()
	if p.followed == nil {
		p.followed = make(map[NVModule][]link.Link)
	}
	p.followed[module] = make([]link.Link, 0, len(collection.Programs))
	for name, program := range spare.Of(collection) {
		tracepoint := spec.Programs[name].AttachTo
		l, err := program.Attach(spare.Raw(tracepoint))
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, tracepoint)
			continue
		}
		if err != nil {
			err = fmt.Errorf("%w: cannot attach %s to the tracepoint %s: %w", ErrUnsupported, name, tracepoint, err)
			return nil, errors.Join(err, p.Unfollow(module))
		}
		p.followed[module] = append(p.followed[module], l)
	}
	slices.Sort(missing)
	// The kernel's type information was needed only for loading.
	debug.FreeOSMemory()
	return missing, nil
}

// Unfollow detaches the programs for a module.
func (p *Programs) Unfollow(module NVModule) error {
	err := closeAll(p.followed[module])
	delete(p.followed, module)
	return err
}

// all are the links of all programs.
func (p *Programs) all() []link.Link {
	all := slices.Clone(p.links)
	for _, links := range p.followed {
		all = append(all, links...)
	}
	return all
}

// Missed returns the number of events, since the last call, for which the kernel did not run
// a program: see [Misses].
func (p *Programs) Missed() (uint64, error) { return p.misses.Since(p.all()) }

// Statistics returns the runs of the programs, by name.
func (p *Programs) Statistics() ([]ProgramStatistics, error) { return linkStatistics(p.all()) }

// Close detaches all.
func (p *Programs) Close() error { return closeAll(p.all()) }
