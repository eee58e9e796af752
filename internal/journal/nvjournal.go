package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/daybook-project/daybook/internal/spare"
)

// lineBytes is the unit of a journal in memory (bpf/nvjournal.h).
const lineBytes = 64

// NVModule is a kernel module with a journal in memory.
type NVModule string

// The modules.
const (
	Ext4NVJ NVModule = "ext4nvj"
	JFSNVJ  NVModule = "jfsnvj"
)

// NVModules are all of them.
var NVModules = []NVModule{Ext4NVJ, JFSNVJ}

// HasNVJournal reports whether one of the modules is loaded.
func HasNVJournal() bool {
	return slices.ContainsFunc(NVModules, func(m NVModule) bool {
		_, err := os.Stat("/sys/module/" + string(m))
		return err == nil
	})
}

// ofNVJournal reports whether a program uses a tracepoint of one of the modules.
func ofNVJournal(program *ebpf.ProgramSpec) bool { return program.Type == ebpf.RawTracepoint }

// Has reports whether a program uses a tracepoint of the module. Those of ext4nvj have
// the names of jbd2's and ext4's, with another prefix.
func (m NVModule) Has(program *ebpf.ProgramSpec) bool {
	of := Ext4NVJ
	if strings.HasPrefix(program.AttachTo, string(JFSNVJ)+"_") {
		of = JFSNVJ
	}
	return ofNVJournal(program) && of == m
}

// FollowNVJournal starts or ends the accounting of the journals of a module, which
// must be loaded. Meanwhile the module cannot be unloaded. It returns the
// tracepoints that the module lacks.
func (p *Probe) FollowNVJournal(module NVModule, follow bool) (missing []string, err error) {
	_, followed := p.followed[module]
	if follow == followed {
		return nil, nil
	}
	if !follow {
		return nil, p.unfollow(module)
	}
	spec, err := p.source()
	if err != nil {
		return nil, fmt.Errorf("cannot read the compiled BPF programs: %w", err)
	}
	maps.DeleteFunc(spec.Programs, func(_ string, program *ebpf.ProgramSpec) bool { return !module.Has(program) })
	cache := btf.NewCache()
	if err := AddSpares(spec, cache); err != nil {
		return nil, err
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: p.maps, Cache: cache})
	if err != nil {
		return nil, fmt.Errorf("%w: cannot load the BPF programs for %s: %w", ErrUnsupported, module, err)
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
			err = fmt.Errorf("%w: cannot attach %s to the tracepoint %s: %w", ErrUnsupported, name, tracepoint, err)
			return nil, errors.Join(err, p.unfollow(module))
		}
		p.followed[module] = append(p.followed[module], l)
	}
	slices.Sort(missing)
	// The kernel's type information was needed only for loading.
	debug.FreeOSMemory()
	return missing, nil
}

func (p *Probe) unfollow(module NVModule) error {
	err := closeAll(p.followed[module])
	delete(p.followed, module)
	return err
}

// collectLogs computes this interval's sums from the kernel's running sums.
func (p *Probe) collectLogs() error {
	err := p.logged.collect(p.objects.Logged, func(key attributionLoggedKey, before, now attributionLogged) {
		p.pending.Logs = append(p.pending.Logs, Log{
			Dev: key.Dev, Instance: key.Instance, Cgroup: key.Cgroup,
			Bytes:   (now.Lines - before.Lines) * lineBytes,
			Blocks:  now.Blocks - before.Blocks,
			Handles: now.Handles - before.Handles,
			Commits: now.Commits - before.Commits,
			Forced:  now.Forced - before.Forced,
		})
	})
	if err != nil {
		return fmt.Errorf("cannot read which cgroups logged to a journal in memory: %w", err)
	}
	return nil
}
