package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/spare"
)

// ErrUnsupported is wrapped by errors that name a missing kernel feature.
var ErrUnsupported = errors.New("this host cannot attribute the journal")

// ErrNotLoaded is wrapped by errors that name a missing tracepoint of jbd2, where that module is not
// loaded: the first mount of an ext4 loads it. It wraps ErrUnsupported.
var ErrNotLoaded = fmt.Errorf("%w yet", ErrUnsupported)

// drainInterval limits the memory of the kernel side: with 65,536 entries, 300
// commits a second and 1 s there is space for 200 cgroups in every commit.
const drainInterval = time.Second

// Probe is the kernel side of the handles estimator.
type Probe struct {
	objects   attributionObjects
	maps      map[string]*ebpf.Map // those of objects, by name
	source    func() (*ebpf.CollectionSpec, error)
	programs  Programs
	variables []*ebpf.Map // those of maps that are not in objects
	// submissions is the program for submitted bios while it is not attached; see
	// observeSubmissions.
	submissions *spare.Program
	// completions is the program for completed bios while it is not attached.
	completions *spare.Program
	// holds are the programs for bios that io.cost holds back, by name, while they are not
	// attached.
	holds      map[string]*hold
	blockNames map[string]bool // devices that were looked at for it
	// findLogs is false where the programs cannot use where logs are.
	findLogs bool
	logs     logs
	records  records
	missing  []string
	// functionsHidden: see FunctionsHidden.
	functionsHidden bool
	stop            func() // ends the draining; nil before that starts and after Close
	mu              sync.Mutex
	pending         Events
	err             error
	written         runningSums[attributionWrittenKey, uint64]
	charged         runningSums[attributionChargedKey, attributionCharged]
	// The arrays in front of maps.
	chargedPlaces    chargedPlaces
	filesystemPlaces places[attributionFilesystemPlace]
	logged           runningSums[attributionLoggedKey, attributionLogged]
	partial          map[transaction]uint64 // bytes returned of commits in progress
	buffers          drainBuffers
	lost             uint64
	ended            map[uint32]endedInstance // by device
	owners           ownersCount
	generation       uint32 // of the map of disks
}

// Open loads the programs into the kernel and attaches them. It needs root
// (CAP_BPF and CAP_PERFMON) and a kernel with BTF, 5.10 or newer; errors about
// the host wrap ErrUnsupported. It changes nothing on the host.
func Open() (*Probe, error) {
	if err := checkBTF(); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: attaching BPF programs needs root", ErrUnsupported)
	}
	typed, err := hasTypedTask()
	if err != nil {
		return nil, err
	}
	if !typed {
		return open(loadAttributionUntyped)
	}
	p, err := open(loadAttribution)
	if errors.Is(err, ErrUnsupported) {
		// Before 5.12, and later on some architectures, without atomic operations.
		if p, err := open(loadAttributionUntyped); err == nil {
			return p, nil
		}
	}
	return p, err
}

// hasTypedTask reports whether programs can follow the current task's pointer without
// helper calls, which take most of a program's time: since 5.11.
func hasTypedTask() (bool, error) {
	// There is no such test for ebpf.Tracing. The kernel has the helper for both.
	err := features.HaveProgramHelper(ebpf.RawTracepoint, asm.FnGetCurrentTaskBtf)
	if err != nil && !errors.Is(err, ebpf.ErrNotSupported) {
		return false, fmt.Errorf("%w: cannot test for bpf_get_current_task_btf: %v", ErrUnsupported, err)
	}
	return err == nil, nil
}

func open(load func() (*ebpf.CollectionSpec, error)) (*Probe, error) {
	source := func() (*ebpf.CollectionSpec, error) {
		spec, err := load()
		if err == nil {
			prepareRecords(spec)
		}
		return spec, err
	}
	spec, err := source()
	if err != nil {
		return nil, fmt.Errorf("cannot read the compiled BPF programs: %w", err)
	}
	p := &Probe{
		source: source,
		// As in bpf/charged.h.
		generation: 1,
		partial:    make(map[transaction]uint64),
		ended:      make(map[uint32]endedInstance),
	}
	if err := p.load(spec); err != nil {
		return nil, errors.Join(err, p.detach())
	}
	// The kernel's type information was needed only for loading.
	debug.FreeOSMemory()
	p.stop = Regularly(drainInterval, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.drainCommits()
		if err := errors.Join(p.observeSubmissions(), p.observeLogs()); err != nil && p.err == nil {
			p.err = err
		}
	})
	return p, nil
}

func (p *Probe) load(spec *ebpf.CollectionSpec) error {
	cache := btf.NewCache()
	missing, err := Prepare(spec, cache, required)
	if err != nil {
		return err
	}
	p.missing = missing
	collection, err := newCollection(spec, cache)
	if err != nil {
		return err
	}
	defer collection.Close()
	programs, err := Attachable(collection, cache)
	if err != nil {
		return err
	}
	if err := p.takeMaps(spec, collection); err != nil {
		return err
	}
	endsKnown, err := p.setEnds(spec)
	if err != nil {
		return err
	}
	for name, program := range programs {
		if err := p.attach(name, spec.Programs[name].AttachTo, program, endsKnown); err != nil {
			return err
		}
	}
	if err := p.observeSubmissions(); err != nil {
		return err
	}
	return p.records.open(&p.objects)
}

func newCollection(spec *ebpf.CollectionSpec, cache *btf.Cache) (*ebpf.Collection, error) {
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: cache})
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier):
		return nil, fmt.Errorf("%w: the kernel refuses a BPF program: %w", ErrUnsupported, err)
	case err != nil:
		return nil, fmt.Errorf("%w: cannot load the BPF programs: %v", ErrUnsupported, err)
	}
	return collection, nil
}

// takeMaps takes the maps that the probe uses from the collection.
func (p *Probe) takeMaps(spec *ebpf.CollectionSpec, collection *ebpf.Collection) error {
	p.maps = maps.Clone(collection.Maps)
	maps.DeleteFunc(p.maps, func(name string, _ *ebpf.Map) bool { return spare.IsOwn(name) })
	if err := errors.Join(collection.Assign(&p.objects.attributionMaps), collection.Assign(&p.objects.attributionVariables)); err != nil {
		return fmt.Errorf("cannot use the BPF maps: %w", err)
	}
	// Close maps that no code uses with the collection.
	maps.DeleteFunc(p.maps, func(name string, _ *ebpf.Map) bool { return collection.Maps[name] != nil })
	// All programs have the same global variables, also those that are loaded later.
	for _, section := range []string{".bss", ".data"} {
		variables, err := collection.Maps[section].Clone()
		if err != nil {
			return fmt.Errorf("cannot hold the variables of the BPF programs: %w", err)
		}
		p.maps[section] = variables
		p.variables = append(p.variables, variables)
	}
	// As the program write_superblock, whose bios name their device.
	p.findLogs = spec.Programs["write_superblock"] != nil && spec.Programs["bio_queue"] != nil
	p.logs = logs{known: make(map[uint32]knownLog), last: make(map[uint32]uint64)}
	memory, err := p.maps[".bss"].Memory()
	if err != nil {
		return fmt.Errorf("cannot read the variables of the BPF programs: %w", err)
	}
	p.chargedPlaces.open(memory, spec.Variables["charged_places"])
	p.filesystemPlaces.open(memory, spec.Variables["filesystem_places"])
	return nil
}

// attach attaches a program to its tracepoint. Those for bios are only kept: the one for
// submitted bios, if the functions that end bios are known, until observeSubmissions attaches
// it, the one for completed bios until a device without a request queue is observed, and
// those for held bios until ObserveHolds.
func (p *Probe) attach(name, tracepoint string, program spare.Program, endsKnown bool) error {
	switch {
	case slices.Contains(holdPrograms, name):
		return p.keepHold(name, tracepoint, program)
	case tracepoint == "block_bio_complete":
		return keep(&p.completions, program)
	case tracepoint == "block_bio_queue":
		if endsKnown {
			return keep(&p.submissions, program)
		}
		if err := p.setCloned(); err != nil {
			return err
		}
	}
	return p.programs.Attach(name, tracepoint, program)
}

// keep keeps a program to be attached later.
func keep(at **spare.Program, program spare.Program) error {
	held, err := program.Clone()
	if err == nil {
		*at = &held
	}
	return err
}

// Missing lists the tracepoints that this kernel does not have. bpf/ describes
// the use of each; without them the account is coarser, not wrong.
func (p *Probe) Missing() []string { return slices.Clone(p.missing) }

// Values of the map of disks; the same in bpf/charged.h.
const (
	diskObserved = 1
	diskJournal  = 2
)

// Observe sets the disks (kernel dev_t of whole disks) whose I/O is accounted: when
// requests complete, or, on a device without a request queue (device mapper, md),
// when bios are submitted. Of journals, devices of external journals, only the journal
// is counted; that is necessary only for devices without a request queue. Commits of
// all disks are seen.
func (p *Probe) Observe(disks []uint32, journals ...uint32) error {
	wanted := make(map[uint32]uint8)
	for _, journal := range journals {
		wanted[journal] = diskJournal
	}
	for _, disk := range disks {
		wanted[disk] = diskObserved
	}
	var old uint32
	var value uint8
	var stale []uint32
	entries := p.objects.Disks.Iterate()
	for entries.Next(&old, &value) {
		if wanted[old] == 0 {
			stale = append(stale, old)
		}
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("cannot list the observed disks: %w", err)
	}
	p.mu.Lock()
	err := p.observeSubmissions()
	for disk := range wanted {
		if err == nil && !hasRequests(disk) {
			err = errors.Join(p.attachSubmissions(), p.attachCompletions())
		}
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	for _, disk := range stale {
		if err := p.objects.Disks.Delete(disk); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("cannot stop observing a disk: %w", err)
		}
	}
	for disk, how := range wanted {
		err := p.objects.Disks.Put(disk, how)
		if err == nil && !hasRequests(disk) {
			err = p.objects.Layers.Set(uint32(1))
		}
		if err != nil {
			return fmt.Errorf("cannot observe a disk: %w", err)
		}
	}
	p.generation++
	if err := p.objects.Generation.Set(p.generation); err != nil {
		return fmt.Errorf("cannot announce other disks to the BPF programs: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.observeLogs(); err != nil || len(stale) == 0 {
		return err
	}
	ended := func(key attributionChargedKey) bool { return slices.Contains(stale, key.Disk) }
	return errors.Join(
		p.written.forget(p.objects.Written, func(key attributionWrittenKey) bool { return slices.Contains(stale, key.Disk) }),
		p.charged.forget(p.objects.ChargedIo, ended),
		p.chargedPlaces.forget(ended),
	)
}

// hasRequests reports whether a disk has queues of requests, as far as is known. For one that is
// gone nothing is to be done, so it counts as if it had.
func hasRequests(disk uint32) bool {
	directory := fmt.Sprint("/sys/dev/block/", blockdev.DevOfKernel(disk))
	if _, err := os.Stat(filepath.Join(directory, "mq")); err == nil {
		return true
	}
	_, err := os.Stat(directory)
	return errors.Is(err, fs.ErrNotExist)
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
	if p.completions != nil {
		errs = append(errs, p.completions.Close())
	}
	if p.submissions != nil {
		errs = append(errs, p.submissions.Close())
	}
	errs = append(errs, p.forgetHolds(), p.records.close())
	for _, m := range p.variables {
		errs = append(errs, m.Close())
	}
	errs = append(errs, p.objects.attributionMaps.Close())
	return errors.Join(errs...)
}
