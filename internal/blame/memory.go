package blame

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/daybook-project/daybook/internal/journal"
)

// variablesMap has the variables of the programs, which all of them share.
const variablesMap = ".bss"

// memoryStarts are the tracepoints of the start of a handle, of which a kernel has the
// first or the others: until 6.3 it was one.
var memoryStarts = []string{"ext4nvj_journal_start", "ext4nvj_journal_start_inode", "ext4nvj_journal_start_sb"}

// FollowNVJournal starts or ends the measurement of waits on the file systems of a
// module, which must be loaded. Meanwhile the module cannot be unloaded. It returns the
// tracepoints that the module lacks.
func (p *Probe) FollowNVJournal(module journal.NVModule, follow bool) (missing []string, err error) {
	if follow == p.programs.Follows(module) {
		return nil, nil
	}
	if !follow {
		return nil, p.programs.Unfollow(module)
	}
	spec, err := loadPrograms()
	if err != nil {
		return nil, fmt.Errorf("cannot read the compiled BPF programs: %w", err)
	}
	if err := setSystemCalls(spec); err != nil {
		return nil, err
	}
	missing, err = p.programs.Follow(module, spec, map[string]*ebpf.Map{
		"buckets": p.maps.Buckets, "held": p.maps.Held, "journals": p.maps.Journals, "lost": p.maps.Lost,
		"ordered": p.maps.Ordered, "tasks": p.maps.Tasks, "waits": p.maps.Waits, variablesMap: p.variables,
		"taken": p.maps.Taken, "ended_calls": p.maps.EndedCalls,
	})
	if slices.Contains(missing, memoryStarts[0]) != slices.Contains(missing, memoryStarts[1]) {
		missing = slices.DeleteFunc(missing, func(m string) bool { return strings.HasPrefix(m, memoryStarts[0]) })
	}
	return missing, err
}
