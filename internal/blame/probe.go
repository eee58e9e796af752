package blame

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/spare"
)

// Probe is the kernel side.
type Probe struct {
	maps      programsMaps
	programs  journal.Programs
	missing   []string
	variables *ebpf.Map // of the programs
	ended     endedCalls
	// flushes is the program for submitted bios while it is not attached; see
	// observeFlushes.
	flushes *spare.Program
	stop    func() // ends the draining; nil before that starts and after Close
	mu      sync.Mutex
	pending Events
	lost    uint64
	err     error
}

// drainInterval limits the memory of the kernel side: with 32,768 entries there
// is space for 100 cgroups in each of 300 commits a second.
const drainInterval = time.Second

const batchEntries = 4096

// required are the tracepoints without which no wait can be measured. Without
// another one, its phase is in a neighbouring one.
var required = []string{"ext4_sync_file_enter", "ext4_sync_file_exit", "jbd2_start_commit", "jbd2_end_commit"}

// Open loads the programs into the kernel and attaches them. It needs root and a
// kernel with BTF, 5.15 or newer; errors about the host wrap
// journal.ErrUnsupported. It changes nothing on the host.
func Open() (*Probe, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: attaching BPF programs needs root", journal.ErrUnsupported)
	}
	spec, err := loadPrograms()
	if err != nil {
		return nil, fmt.Errorf("cannot read the compiled BPF programs: %w", err)
	}
	p := new(Probe)
	if err := p.load(spec); err != nil {
		return nil, errors.Join(err, p.detach())
	}
	// The kernel's type information was needed only for loading.
	debug.FreeOSMemory()
	p.stop = journal.Regularly(drainInterval, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.drain()
		if err := p.observeFlushes(); err != nil && p.err == nil {
			p.err = err
		}
	})
	return p, nil
}

func (p *Probe) load(spec *ebpf.CollectionSpec) error {
	if err := setSystemCalls(spec); err != nil {
		return err
	}
	cache := btf.NewCache()
	missing, err := journal.Prepare(spec, cache, required)
	if err != nil {
		return err
	}
	p.missing = lacking(missing)
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: cache})
	if err != nil {
		return fmt.Errorf("%w: cannot load the BPF programs that measure waits, which need Linux 5.15 or newer: %w", journal.ErrUnsupported, err)
	}
	defer collection.Close()
	programs, err := journal.Attachable(collection, cache)
	if err != nil {
		return err
	}
	if err := p.takeMaps(collection); err != nil {
		return err
	}
	for name, program := range programs {
		if err := p.attach(name, spec.Programs[name].AttachTo, program); err != nil {
			return err
		}
	}
	return p.observeFlushes()
}

// takeMaps takes the maps that the probe uses from the collection.
func (p *Probe) takeMaps(collection *ebpf.Collection) (err error) {
	if p.variables, err = collection.Maps[variablesMap].Clone(); err != nil {
		return fmt.Errorf("cannot use the variables of the BPF programs: %w", err)
	}
	if err := errors.Join(collection.Assign(&p.maps), collection.Assign(&p.ended.variables)); err != nil {
		return fmt.Errorf("cannot use the BPF maps: %w", err)
	}
	return p.ended.open(p.maps.EndedCalls)
}

// attach attaches a program to its tracepoint. The program for submitted bios is only kept:
// observeFlushes attaches it.
func (p *Probe) attach(name, tracepoint string, program spare.Program) error {
	if tracepoint != submitted {
		return p.programs.Attach(name, tracepoint, program)
	}
	held, err := program.Clone()
	if err != nil {
		return err
	}
	p.flushes = &held
	return nil
}

// renamed are tracepoints, by their name of before, with those in their place since.
var renamed = map[string][]string{
	"ext4_journal_start":     {"ext4_journal_start_sb", "ext4_journal_start_inode"}, // since 6.3
	"wait_on_page_writeback": {"folio_wait_writeback"},                              // since 5.16
}

// lacking returns the missing tracepoints without those that the kernel has by another name.
func lacking(missing []string) []string {
	missing = slices.Clone(missing)
	for before, since := range renamed {
		isMissing := func(tracepoint string) bool { return slices.Contains(missing, tracepoint) }
		if isMissing(before) != slices.ContainsFunc(since, isMissing) {
			missing = slices.DeleteFunc(missing, func(m string) bool { return m == before || slices.Contains(since, m) })
		}
	}
	return missing
}

// setSystemCalls sets the numbers of the system calls on this architecture.
func setSystemCalls(spec *ebpf.CollectionSpec) error {
	for name, number := range map[string]int64{
		"sys_fsync": unix.SYS_FSYNC, "sys_fdatasync": unix.SYS_FDATASYNC, "sys_msync": unix.SYS_MSYNC,
	} {
		if err := spec.Variables[name].Set(number); err != nil {
			return fmt.Errorf("cannot set %s in the BPF programs: %w", name, err)
		}
	}
	return nil
}

// Missing lists the tracepoints that this kernel does not have.
func (p *Probe) Missing() []string { return slices.Clone(p.missing) }

// Collect returns the events since the last call. The commits that calls waited
// for are in journal.Probe.Collect, called afterwards.
func (p *Probe) Collect() (Events, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain()
	if p.err != nil {
		return Events{}, p.err
	}
	var counts []uint64
	if err := p.maps.Lost.Lookup(uint32(0), &counts); err != nil {
		return Events{}, fmt.Errorf("cannot read the count of lost waits: %w", err)
	}
	var lost uint64
	for _, count := range counts {
		lost += count
	}
	missed, err := p.programs.Missed()
	if err != nil {
		return Events{}, err
	}
	events := p.pending
	events.Lost, p.lost = lost-p.lost, lost
	events.Missed = missed
	p.pending = Events{}
	return events, nil
}

// drain moves the sums out of the kernel. It stores the first error for Collect.
func (p *Probe) drain() {
	if p.err != nil {
		return
	}
	if p.pending.Calls == nil {
		p.pending.Calls = make(map[Call]Histogram)
	}
	count := func(call Call, bucket Bucket, calls uint64) {
		if p.pending.Calls[call] == nil {
			p.pending.Calls[call] = make(Histogram)
		}
		p.pending.Calls[call][bucket] += calls
	}
	p.err = errors.Join(
		p.ended.take(count, func(w Wait) { p.pending.Waits = append(p.pending.Waits, w) }),
		take(p.maps.Buckets, func(key programsBucketKey, calls uint64) {
			count(Call{Dev: key.Dev, Cgroup: key.Cgroup, Operation: Operation(key.Operation)}, Bucket(key.Bucket), calls)
		}),
		take(p.maps.Waits, func(key programsWaitKey, wait programsWait) {
			p.pending.Waits = append(p.pending.Waits, Wait{
				Call: Call{Dev: key.Dev, Cgroup: key.Cgroup, Operation: Operation(key.Operation)},
				Tid:  key.Tid, Memory: key.Memory != 0, Nanoseconds: wait.Ns,
			})
		}),
		take(p.maps.Held, func(key programsHeldKey, ns uint64) {
			p.pending.Held = append(p.pending.Held, Held{Dev: key.Dev, Tid: key.Tid, Cgroup: key.Cgroup, Ino: key.Ino, Nanoseconds: ns})
		}),
		take(p.maps.Ordered, func(key programsOrderedKey, sums programsOrdered) {
			p.pending.Ordered = append(p.pending.Ordered, Ordered{Dev: key.Dev, Tid: key.Tid, Ino: key.Ino, Bytes: sums.Bytes, Waits: sums.Waits})
		}),
	)
}

// take removes all entries of a map.
func take[K, V any](m *ebpf.Map, visit func(K, V)) error {
	keys, values := make([]K, batchEntries), make([]V, batchEntries)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookupAndDelete(&cursor, keys, values, nil)
		for i := range n {
			visit(keys[i], values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read the waits from the kernel's map: %w", err)
		}
	}
}

// Pause detaches the programs until resume is called, as journal.Probe.Pause does.
// It is for measurements of the programs' cost.
func (p *Probe) Pause() (resume func() error, err error) { return p.programs.Pause() }

// Placeholders loads a program that does nothing for each program that is attached.
func (p *Probe) Placeholders() (*journal.Placeholders, error) {
	return p.programs.Placeholders()
}

// Statistics returns the runs of the programs, by name.
func (p *Probe) Statistics() ([]journal.ProgramStatistics, error) {
	return p.programs.Statistics()
}

// Close detaches everything; the kernel frees the programs and maps.
func (p *Probe) Close() error {
	if p.stop == nil { // closed already
		return nil
	}
	p.stop()
	p.stop = nil
	return p.detach()
}

func (p *Probe) detach() error {
	errs := []error{p.programs.Close()}
	if p.flushes != nil {
		errs = append(errs, p.flushes.Close())
	}
	errs = append(errs, p.ended.close())
	if p.variables != nil {
		errs = append(errs, p.variables.Close())
	}
	return errors.Join(append(errs, p.maps.Close())...)
}
