package witness

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/spare"
)

// Transaction identifies a transaction of a file system by its device (kernel
// dev_t).
type Transaction struct{ Dev, Tid uint32 }

// Blocks are blocks by transaction and cgroup id: those that the cgroup was
// first to dirty, minus those that were freed again.
type Blocks map[Transaction]map[uint64]int64

// Witness is attached to the kernel until it is closed.
type Witness struct {
	objects witnessObjects
	links   []link.Link
	misses  journal.Misses
}

// Open attaches the programs. It needs root, and jbd2 and ext4 loaded, with
// BTF. A function that the kernel does not have is an error.
func Open() (*Witness, error) {
	spec, err := loadWitness()
	if err != nil {
		return nil, fmt.Errorf("cannot read the compiled BPF programs: %w", err)
	}
	cache := btf.NewCache()
	if err := journal.AddSpares(spec, cache); err != nil {
		return nil, err
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: cache})
	if err != nil {
		return nil, fmt.Errorf("cannot load the witness into the kernel: %w", err)
	}
	defer collection.Close()
	w := &Witness{}
	if err := collection.Assign(&w.objects.witnessMaps); err != nil {
		return nil, fmt.Errorf("cannot use the witness's maps: %w", err)
	}
	for name, program := range spare.Of(collection) {
		l, err := program.AttachToFunction()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot attach %s to %s: %w", name, spec.Programs[name].AttachTo, err), w.Close())
		}
		w.links = append(w.links, l)
	}
	return w, nil
}

// Count is the result of a witness.
type Count struct {
	Blocks Blocks
	// Contested is the number of blocks of each transaction that two cgroups
	// started to dirty at the same time. From outside the kernel's function it
	// is unknown which of them was first and is charged.
	Contested map[Transaction]int64
}

// Count returns the counts since Open.
func (w *Witness) Count() (Count, error) {
	var lost uint64
	if err := w.objects.Lost.Lookup(uint32(0), &lost); err != nil {
		return Count{}, fmt.Errorf("cannot read what the witness lost: %w", err)
	}
	if lost > 0 {
		return Count{}, fmt.Errorf("the witness lost %d events for lack of space: no verdict is possible", lost)
	}
	seen := Count{Blocks: make(Blocks), Contested: make(map[Transaction]int64)}
	var key witnessDirtiedKey
	var count int64
	entries := w.objects.Dirtied.Iterate()
	for entries.Next(&key, &count) {
		transaction := Transaction{key.Dev, key.Tid}
		if seen.Blocks[transaction] == nil {
			seen.Blocks[transaction] = make(map[uint64]int64)
		}
		seen.Blocks[transaction][key.Cgroup] += count
	}
	if err := entries.Err(); err != nil {
		return Count{}, fmt.Errorf("cannot read what the witness counted: %w", err)
	}
	var transaction witnessTransactionKey
	entries = w.objects.Contested.Iterate()
	for entries.Next(&transaction, &count) {
		seen.Contested[Transaction{transaction.Dev, transaction.Tid}] = count
	}
	if err := entries.Err(); err != nil {
		return Count{}, fmt.Errorf("cannot read which blocks were contested: %w", err)
	}
	return seen, nil
}

// Missed returns the number of events since the last call that the kernel showed to no
// program.
func (w *Witness) Missed() (uint64, error) { return w.misses.Since(w.links) }

// Close detaches the programs.
func (w *Witness) Close() error {
	var errs []error
	for _, l := range w.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, w.objects.witnessMaps.Close())...)
}
