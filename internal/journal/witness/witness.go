package witness

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Transaction names one of a file system, by its device (kernel dev_t).
type Transaction struct{ Dev, Tid uint32 }

// Blocks are blocks by transaction and cgroup id: those that the cgroup was
// first to dirty in it, less those that were freed in it again.
type Blocks map[Transaction]map[uint64]int64

// Witness is attached to the kernel until it is closed.
type Witness struct {
	objects witnessObjects
	links   []link.Link
}

// Open attaches the programs. It needs root, and jbd2 and ext4 loaded, with
// BTF. A function that the kernel does not have is an error.
func Open() (*Witness, error) {
	spec, err := loadWitness()
	if err != nil {
		return nil, fmt.Errorf("cannot read the compiled BPF programs: %w", err)
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("cannot load the witness into the kernel: %w", err)
	}
	defer collection.Close()
	w := &Witness{}
	if err := collection.Assign(&w.objects.witnessMaps); err != nil {
		return nil, fmt.Errorf("cannot use the witness's maps: %w", err)
	}
	for name, program := range collection.Programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot attach %s to %s: %w", name, spec.Programs[name].AttachTo, err), w.Close())
		}
		w.links = append(w.links, l)
	}
	return w, nil
}

// Blocks gives what was counted since Open.
func (w *Witness) Blocks() (Blocks, error) {
	var lost uint64
	if err := w.objects.Lost.Lookup(uint32(0), &lost); err != nil {
		return nil, fmt.Errorf("cannot read what the witness lost: %w", err)
	}
	if lost > 0 {
		return nil, fmt.Errorf("the witness had no room for %d events: nothing can be said", lost)
	}
	blocks := make(Blocks)
	var key witnessDirtiedKey
	var count int64
	entries := w.objects.Dirtied.Iterate()
	for entries.Next(&key, &count) {
		transaction := Transaction{key.Dev, key.Tid}
		if blocks[transaction] == nil {
			blocks[transaction] = make(map[uint64]int64)
		}
		blocks[transaction][key.Cgroup] += count
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("cannot read what the witness counted: %w", err)
	}
	return blocks, nil
}

// Close detaches the programs.
func (w *Witness) Close() error {
	var errs []error
	for _, l := range w.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, w.objects.witnessMaps.Close())...)
}
