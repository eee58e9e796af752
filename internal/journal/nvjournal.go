package journal

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
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
	if follow == p.programs.Follows(module) {
		return nil, nil
	}
	if !follow {
		return nil, p.programs.Unfollow(module)
	}
	spec, err := p.source()
	if err != nil {
		return nil, fmt.Errorf("cannot read the compiled BPF programs: %w", err)
	}
	return p.programs.Follow(module, spec, p.maps)
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
