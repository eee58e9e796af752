package journal

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// CallProbe is the kernel side of the syscalls estimator.
type CallProbe struct {
	mu    sync.Mutex
	maps  syscallsMaps
	links []link.Link
	calls runningSums[syscallsCallKey, uint64]
	lost  uint64
}

// OpenCalls starts counting. It has the requirements of [Open], and needs
// tracefs; errors about the host wrap ErrUnsupported. It changes nothing on the
// host, but while it is open every system call of every program uses the
// kernel's slower path for traced calls.
func OpenCalls() (*CallProbe, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: attaching BPF programs needs root", ErrUnsupported)
	}
	if err := findTracepoints(traceDirectories); err != nil {
		return nil, err
	}
	cache := btf.NewCache()
	arguments, err := tracepointArguments(cache, "jbd2_handle_stats")
	if err != nil {
		return nil, err
	}
	if arguments == nil {
		return nil, noTracepoint("jbd2_handle_stats")
	}
	p := new(CallProbe)
	if err := p.load(cache); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	// The kernel's type information was needed only for loading.
	debug.FreeOSMemory()
	return p, nil
}

func (p *CallProbe) load(cache *btf.Cache) error {
	spec, err := loadSyscalls()
	if err != nil {
		return fmt.Errorf("cannot read the compiled BPF programs: %w", err)
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: cache})
	if err != nil {
		return fmt.Errorf("%w: cannot load the BPF programs that count calls: %w", ErrUnsupported, err)
	}
	defer collection.Close()
	if err := collection.Assign(&p.maps); err != nil {
		return fmt.Errorf("cannot use the BPF maps: %w", err)
	}
	const handle = syscallsProgCallHandle
	l, err := link.AttachTracing(link.TracingOptions{Program: collection.Programs[handle]})
	if err != nil {
		return fmt.Errorf("%w: cannot attach %s to the tracepoint %s: %w",
			ErrUnsupported, handle, spec.Programs[handle].AttachTo, err)
	}
	p.links = append(p.links, l)
	links, err := attachCalls(collection.Programs)
	p.links = append(p.links, links...)
	return err
}

// Collect returns the calls that returned since the last collection, and the
// number of calls that the kernel side lost for lack of space.
func (p *CallProbe) Collect() (calls []Call, lost uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err = p.calls.collect(p.maps.Calls, func(key syscallsCallKey, before, now uint64) {
		if name, ok := operationName(key.Operation); ok {
			calls = append(calls, Call{Cgroup: key.Cgroup, Dev: key.Dev, Operation: name, Count: now - before})
		}
	})
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read the counts of calls: %w", err)
	}
	lost, err = p.collectLost()
	return calls, lost, err
}

func (p *CallProbe) collectLost() (uint64, error) {
	sum, err := sumOverCPUs(p.maps.LostCalls, 0)
	if err != nil {
		return 0, fmt.Errorf("cannot read the count of lost calls: %w", err)
	}
	lost := sum - p.lost
	p.lost = sum
	return lost, nil
}

func operationName(number uint32) (string, bool) {
	if number < 1 || number > uint32(len(operations)) {
		return "", false
	}
	return operations[number-1], true
}

// Close ends the counting; the kernel frees the programs and maps. It takes
// some seconds, because for each call the kernel waits until no processor can
// be in the program any more.
func (p *CallProbe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := closeAll(p.links)
	p.links = nil
	return errors.Join(err, p.maps.Close())
}

// Eight closers at a time halve the wait; more do not shorten it further.
const closers = 8

func closeAll(links []link.Link) error {
	errs := make([]error, len(links))
	var workers sync.WaitGroup
	for first := range min(closers, len(links)) {
		workers.Go(func() {
			for i := first; i < len(links); i += closers {
				errs[i] = links[i].Close()
			}
		})
	}
	workers.Wait()
	return errors.Join(errs...)
}
