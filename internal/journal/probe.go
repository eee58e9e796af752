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
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
)

// ErrUnsupported is wrapped by errors that say what this kernel lacks.
var ErrUnsupported = errors.New("this host cannot attribute the journal")

// drainInterval bounds what the kernel side must hold: with 65,536 entries,
// 300 commits a second and 1 s there is room for 200 cgroups in every commit.
const drainInterval = time.Second

// Probe is the kernel side of the handles estimator.
type Probe struct {
	objects  attributionObjects
	maps     map[string]*ebpf.Map // those of objects, by name
	source   func() (*ebpf.CollectionSpec, error)
	links    []link.Link
	followed []link.Link // of ext4nvj; nil while it is not followed
	commits  *ringbuf.Reader
	missing  []string
	stop     chan struct{}
	stopped  sync.WaitGroup
	mu       sync.Mutex
	pending  Events
	err      error
	previous map[attributionWrittenKey]seenSum
	logged   map[attributionLoggedKey]seenLog
	partial  map[transaction]uint64 // bytes handed out of commits under way
	buffers  drainBuffers
	lost     uint64
	ended    map[uint32]endedInstance // by device
	owners   ownersCount
}

// Open loads the programs into the kernel and attaches them. It needs root
// (CAP_BPF and CAP_PERFMON) and a kernel with BTF, 5.10 or newer; errors about
// the host wrap ErrUnsupported. Nothing on the host is changed.
func Open() (*Probe, error) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the kernel has no BTF (/sys/kernel/btf/vmlinux); "+
			"it must be built with CONFIG_DEBUG_INFO_BTF=y", ErrUnsupported)
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: attaching BPF programs needs root", ErrUnsupported)
	}
	load := loadAttribution
	if features.HaveProgramHelper(ebpf.Tracing, asm.FnGetCurrentTaskBtf) != nil {
		load = loadAttributionUntyped // kernels before 5.11
	}
	return open(load)
}

func open(load func() (*ebpf.CollectionSpec, error)) (*Probe, error) {
	spec, err := load()
	if err != nil {
		return nil, fmt.Errorf("cannot read the compiled BPF programs: %w", err)
	}
	p := &Probe{
		source:   load,
		stop:     make(chan struct{}),
		previous: make(map[attributionWrittenKey]seenSum),
		logged:   make(map[attributionLoggedKey]seenLog),
		partial:  make(map[transaction]uint64),
		ended:    make(map[uint32]endedInstance),
	}
	if err := p.load(spec); err != nil {
		p.Close()
		return nil, err
	}
	// The kernel's type information was only needed to load.
	debug.FreeOSMemory()
	p.stopped.Add(1)
	go p.drainRegularly()
	return p, nil
}

func (p *Probe) load(spec *ebpf.CollectionSpec) error {
	cache := btf.NewCache()
	maps.DeleteFunc(spec.Programs, func(_ string, program *ebpf.ProgramSpec) bool { return ofNVJournal(program) })
	missing, err := dropUnattachable(spec, cache)
	if err != nil {
		return err
	}
	p.missing = missing
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: cache})
	if err != nil {
		var verifier *ebpf.VerifierError
		if errors.As(err, &verifier) {
			return fmt.Errorf("%w: the kernel refuses a BPF program: %v", ErrUnsupported, err)
		}
		return fmt.Errorf("%w: cannot load the BPF programs: %v", ErrUnsupported, err)
	}
	defer collection.Close()
	p.maps = maps.Clone(collection.Maps)
	if err := collection.Assign(&p.objects.attributionMaps); err != nil {
		return fmt.Errorf("cannot use the BPF maps: %w", err)
	}
	// What is nobody's ends with the collection.
	maps.DeleteFunc(p.maps, func(name string, _ *ebpf.Map) bool { return collection.Maps[name] != nil })
	for name, program := range collection.Programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return fmt.Errorf("%w: cannot attach %s to the tracepoint %s: %v",
				ErrUnsupported, name, spec.Programs[name].AttachTo, err)
		}
		p.links = append(p.links, l)
	}
	p.commits, err = ringbuf.NewReader(p.objects.Commits)
	if err != nil {
		return fmt.Errorf("cannot read the ring buffer of commits: %w", err)
	}
	return nil
}

// Missing lists the tracepoints that this kernel does not have. What each is
// for is in bpf/; without them the account is coarser, not wrong.
func (p *Probe) Missing() []string { return slices.Clone(p.missing) }

// Observe sets the disks (kernel dev_t of whole disks) whose writes are
// accounted; commits are seen of all.
func (p *Probe) Observe(disks []uint32) error {
	var old uint32
	var value uint8
	var stale []uint32
	entries := p.objects.Disks.Iterate()
	for entries.Next(&old, &value) {
		if !slices.Contains(disks, old) {
			stale = append(stale, old)
		}
	}
	if len(stale) > 0 {
		p.mu.Lock()
		err := p.forgetWritten(func(key attributionWrittenKey) bool { return slices.Contains(stale, key.Disk) })
		p.mu.Unlock()
		if err != nil {
			return err
		}
	}
	for _, disk := range stale {
		if err := p.objects.Disks.Delete(disk); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("cannot stop observing a disk: %w", err)
		}
	}
	for _, disk := range disks {
		if err := p.objects.Disks.Put(disk, uint8(1)); err != nil {
			return fmt.Errorf("cannot observe a disk: %w", err)
		}
	}
	return nil
}

// Close detaches everything; the kernel frees the programs and maps.
func (p *Probe) Close() error {
	select {
	case <-p.stop:
		return nil
	default:
		close(p.stop)
	}
	p.stopped.Wait()
	var errs []error
	for _, l := range slices.Concat(p.links, p.followed) {
		errs = append(errs, l.Close())
	}
	if p.commits != nil {
		errs = append(errs, p.commits.Close())
	}
	errs = append(errs, p.objects.attributionMaps.Close())
	return errors.Join(errs...)
}

// required are the tracepoints without which nothing can be attributed, unless
// ext4nvj is there.
var required = []string{"jbd2_handle_stats", "jbd2_run_stats"}

// dropUnattachable removes the programs whose tracepoint this kernel does not
// have or has with other arguments, and returns the tracepoints left without
// a program.
func dropUnattachable(spec *ebpf.CollectionSpec, cache *btf.Cache) ([]string, error) {
	served := make(map[string]bool)
	for name, program := range spec.Programs {
		tracepoint := program.AttachTo
		proto, err := tracepointArguments(cache, tracepoint)
		if err != nil {
			return nil, err
		}
		fits := proto != nil && argumentsFit(name, proto)
		served[tracepoint] = served[tracepoint] || fits
		if !fits {
			delete(spec.Programs, name)
		}
	}
	var missing []string
	for tracepoint, ok := range served {
		if !ok {
			missing = append(missing, tracepoint)
		}
	}
	slices.Sort(missing)
	lacking := slices.DeleteFunc(slices.Clone(missing), func(m string) bool { return !slices.Contains(required, m) })
	if len(lacking) == 0 {
		return missing, nil
	}
	if !hasNVJournal() {
		return nil, fmt.Errorf("%w: the kernel has no tracepoint %s; is jbd2 loaded (is any ext4 mounted), "+
			"and does it have BTF?", ErrUnsupported, lacking[0])
	}
	// The kernel's own ext4 is not there: to name all that it would have says no more.
	return lacking, nil
}

// argumentsFit picks between the variants of one program; the first argument
// of the prototype is the kernel's own context.
func argumentsFit(program string, arguments []btf.FuncParam) bool {
	first := ""
	if len(arguments) > 1 {
		first = pointedTo(arguments[1].Type)
	}
	switch program {
	case "sync_file":
		return first == "file"
	case "sync_dentry":
		return first == "dentry"
	case "bio_queue":
		return first == "bio"
	case "bio_queue_of":
		return first == "request_queue"
	case "rq_complete":
		return first == "request"
	}
	return true
}

func pointedTo(t btf.Type) string {
	if pointer, ok := btf.UnderlyingType(t).(*btf.Pointer); ok {
		return btf.UnderlyingType(pointer.Target).TypeName()
	}
	return ""
}

// tracepointArguments returns nil if no tracepoint has that name, in the
// kernel or in one of its modules.
func tracepointArguments(cache *btf.Cache, tracepoint string) ([]btf.FuncParam, error) {
	specs := []func() (*btf.Spec, error){cache.Kernel}
	module, _, _ := strings.Cut(tracepoint, "_")
	if _, err := os.Stat("/sys/kernel/btf/" + module); err == nil {
		specs = append(specs, func() (*btf.Spec, error) { return cache.Module(module) })
	}
	for _, load := range specs {
		spec, err := load()
		if err != nil {
			return nil, fmt.Errorf("%w: cannot read the kernel's BTF: %v", ErrUnsupported, err)
		}
		var typedef *btf.Typedef
		err = spec.TypeByName("btf_trace_"+tracepoint, &typedef)
		if errors.Is(err, btf.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot look up the tracepoint %s: %w", tracepoint, err)
		}
		pointer, ok := typedef.Type.(*btf.Pointer)
		if !ok {
			return nil, fmt.Errorf("the tracepoint %s has the type %s, no pointer to a function", tracepoint, typedef.Type)
		}
		proto, ok := pointer.Target.(*btf.FuncProto)
		if !ok {
			return nil, fmt.Errorf("the tracepoint %s points to %s, no function", tracepoint, pointer.Target)
		}
		return proto.Params, nil
	}
	return nil, nil
}
