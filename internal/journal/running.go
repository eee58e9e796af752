package journal

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// runningSums computes how much the sums in a kernel's map, which never decrease, grow
// between collections.
type runningSums[K, V comparable] struct {
	last   map[K]lastSum[V]
	keys   []K // reused between collections to reduce allocations
	values []V
}

// lastSum is what a sum in the kernel was at the last collection.
type lastSum[V any] struct {
	sum V
	// idle is the number of collections since it last changed.
	idle int
}

// idleCollections is the number of collections after which an unchanged sum is
// deleted from the kernel's map, so that removed cgroups do not fill it.
const idleCollections = 120

const batchEntries = 4096

// collect visits the sums that changed since the last collection, and then deletes
// those that have not changed for long from the kernel's map.
func (r *runningSums[K, V]) collect(m *ebpf.Map, visit func(key K, before, now V)) error {
	if r.keys == nil {
		r.keys, r.values = make([]K, batchEntries), make([]V, batchEntries)
	}
	err := readAll(m, r.keys, r.values, func(n int) {
		for i, key := range r.keys[:n] {
			r.note(key, r.values[i], visit)
		}
	})
	if err != nil {
		return err
	}
	return r.forget(m, r.isIdle)
}

// note visits a sum if it changed since the last collection.
func (r *runningSums[K, V]) note(key K, now V, visit func(key K, before, now V)) {
	if r.last == nil {
		r.last = make(map[K]lastSum[V])
	}
	before := r.last[key]
	if now == before.sum {
		before.idle++
		r.last[key] = before
		return
	}
	r.last[key] = lastSum[V]{sum: now}
	visit(key, before.sum, now)
}

// isIdle reports whether a sum has not changed for long.
func (r *runningSums[K, V]) isIdle(key K) bool { return r.last[key].idle >= idleCollections }

// forget deletes sums that do not grow any more from the kernel's map.
func (r *runningSums[K, V]) forget(m *ebpf.Map, ended func(K) bool) error {
	for key := range r.last {
		if !ended(key) {
			continue
		}
		if err := deleteAll(m, []K{key}); err != nil {
			return err
		}
		delete(r.last, key)
	}
	return nil
}

func deleteAll[K any](m *ebpf.Map, keys []K) error {
	for _, key := range keys {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("cannot delete entries that are needed no longer from the kernel's map: %w", err)
		}
	}
	return nil
}

// readAll visits a whole hash map, one batch at a time.
func readAll[K, V any](m *ebpf.Map, keys []K, values []V, visit func(n int)) error {
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if n > 0 {
			visit(n)
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// sumOverCPUs reads a per-processor counter.
func sumOverCPUs(m *ebpf.Map, key uint32) (sum uint64, err error) {
	var counts []uint64
	if err := m.Lookup(key, &counts); err != nil {
		return 0, err
	}
	for _, count := range counts {
		sum += count
	}
	return sum, nil
}
