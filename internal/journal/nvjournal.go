package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"runtime/debug"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// lineBytes is the unit of a journal in memory (bpf/nvjournal.h).
const lineBytes = 64

// hasNVJournal reports whether ext4nvj is loaded.
func hasNVJournal() bool {
	_, err := os.Stat("/sys/module/ext4nvj")
	return err == nil
}

// ofNVJournal reports whether a program uses a tracepoint of ext4nvj.
func ofNVJournal(program *ebpf.ProgramSpec) bool { return program.Type == ebpf.RawTracepoint }

// FollowNVJournal starts or ends the accounting of the journals of ext4nvj, which
// must be loaded. Meanwhile the module cannot be unloaded. It returns the
// tracepoints that the module lacks.
func (p *Probe) FollowNVJournal(follow bool) (missing []string, err error) {
	if follow == (p.followed != nil) {
		return nil, nil
	}
	if !follow {
		return nil, p.unfollow()
	}
	spec, err := p.source()
	if err != nil {
		return nil, fmt.Errorf("cannot read the compiled BPF programs: %w", err)
	}
	maps.DeleteFunc(spec.Programs, func(_ string, program *ebpf.ProgramSpec) bool { return !ofNVJournal(program) })
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: p.maps})
	if err != nil {
		return nil, fmt.Errorf("%w: cannot load the BPF programs for ext4nvj: %w", ErrUnsupported, err)
	}
	defer collection.Close()
	p.followed = make([]link.Link, 0, len(collection.Programs))
	for name, program := range collection.Programs {
		tracepoint := spec.Programs[name].AttachTo
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint, Program: program})
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, tracepoint)
			continue
		}
		if err != nil {
			err = fmt.Errorf("%w: cannot attach %s to the tracepoint %s: %w", ErrUnsupported, name, tracepoint, err)
			return nil, errors.Join(err, p.unfollow())
		}
		p.followed = append(p.followed, l)
	}
	slices.Sort(missing)
	// The kernel's type information was needed only for loading.
	debug.FreeOSMemory()
	return missing, nil
}

func (p *Probe) unfollow() error {
	err := closeAll(p.followed)
	p.followed = nil
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
