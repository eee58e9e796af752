package journal

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
)

// These values are the same in bpf/instances.h.
const (
	instanceEnded = 1 << 31
	instanceMask  = 1<<24 - 1
)

// endedCollections is the number of collections after which the entries of an
// unmounted file system are deleted from the kernel's maps: its last commit was
// read before.
const endedCollections = 12

// endedInstance is the last known state of a device whose file system was
// unmounted.
type endedInstance struct {
	state uint32
	// idle is the number of collections since it last changed.
	idle int
}

// isGone reports whether an instance was mounted before the current one, or, if
// none is mounted, is the last one. A later one is not gone: it was mounted after
// the state was read.
func (e endedInstance) isGone(instance uint32) bool {
	return e.isEarlier(instance) || instance == e.state&instanceMask && e.state&instanceEnded != 0
}

// isReplaced reports whether another file system of the device was mounted
// since, or the last one was unmounted long ago.
func (e endedInstance) isReplaced(instance uint32) bool {
	return e.isEarlier(instance) || e.isGone(instance) && e.idle >= endedCollections
}

func (e endedInstance) isEarlier(instance uint32) bool {
	return Filesystem{Instance: e.state & instanceMask}.After(Filesystem{Instance: instance})
}

// forgetEnded deletes unmounted file systems from the kernel's maps. Later ones
// have other instances and do not inherit from them, but the entries would fill
// the maps.
func (p *Probe) forgetEnded() error {
	b := &p.buffers
	if b.endKeys == nil {
		b.endKeys = make([]uint32, batchEntries)
		b.endValues = make([]attributionInstance, batchEntries)
	}
	owners, rest := false, false
	err := readAll(p.objects.Instances, b.endKeys, b.endValues, func(n int) {
		for i, dev := range b.endKeys[:n] {
			before, known := p.ended[dev]
			now := endedInstance{state: b.endValues[i].State}
			if known && before.state == now.state {
				now.idle = before.idle + 1
			} else {
				owners, rest = true, true
			}
			rest = rest || now.idle == endedCollections
			p.ended[dev] = now
		}
	})
	if err != nil {
		return fmt.Errorf("cannot read which file systems have ended: %w", err)
	}
	if owners {
		if err := p.forgetOwners(); err != nil {
			return err
		}
	}
	if rest {
		return p.forgetSums()
	}
	return nil
}

func (p *Probe) forgetOwners() error {
	return p.visitOwners(func(key attributionInodeKey) error {
		if ended, ok := p.ended[key.Dev]; !ok || !ended.isGone(key.Instance) {
			return nil
		}
		err := p.objects.Owners.Delete(key)
		if err == nil {
			p.owners.removed++
		}
		return err
	})
}

// forgetSums deletes the sums of replaced file systems, after they were
// collected.
func (p *Probe) forgetSums() error {
	replaced := func(dev, instance uint32) bool {
		ended, ok := p.ended[dev]
		return ok && ended.isReplaced(instance)
	}
	var dirtied []attributionDirtiedKey
	err := p.readDirtied(func(key attributionDirtiedKey, _ int64) {
		if replaced(key.Dev, key.Instance) {
			dirtied = append(dirtied, key)
		}
	})
	if err != nil {
		return err
	}
	if err := deleteAll(p.objects.Dirtied, dirtied); err != nil {
		return err
	}
	err = p.logged.forget(p.objects.Logged, func(key attributionLoggedKey) bool { return replaced(key.Dev, key.Instance) })
	if err != nil {
		return err
	}
	for key := range p.partial {
		if replaced(key.of.Dev, key.of.Instance) {
			delete(p.partial, key)
		}
	}
	return p.written.forget(p.objects.Written, func(key attributionWrittenKey) bool {
		return Kind(key.Kind) == KindMetadata && replaced(uint32(key.Owner), uint32(key.Owner>>32))
	})
}

// ownersCount computes how many owners the kernel's map evicted: the added ones,
// minus those present and those that user space deleted.
type ownersCount struct {
	removed, forgotten uint64
	// counted is the number of added owners at the last count.
	counted uint64
}

// freePerCPU is the number of entries that the kernel reserves for each
// processor in an LRU map (LOCAL_FREE_TARGET in kernel/bpf/bpf_lru_list.c): the
// map evicts when only so many are free.
const freePerCPU = 128

// countForgotten counts the map's entries only if it may have been full.
func (p *Probe) countForgotten() error {
	added, err := sumOverCPUs(p.objects.OwnersAdded, 0)
	if err != nil {
		return fmt.Errorf("cannot read how many owners were added: %w", err)
	}
	o := &p.owners
	possible := added - o.removed - o.forgotten
	spare := uint64(freePerCPU * cpus())
	if added == o.counted || possible+spare < uint64(p.objects.Owners.MaxEntries()) {
		return nil
	}
	o.counted = added
	var present uint64
	if err := p.visitOwners(func(attributionInodeKey) error { present++; return nil }); err != nil {
		return err
	}
	// Some owners can have been added during the count.
	if possible > present {
		o.forgotten += possible - present
		p.pending.OwnersForgotten += possible - present
	}
	return nil
}

func cpus() int {
	if n, err := ebpf.PossibleCPU(); err == nil {
		return n
	}
	return runtime.NumCPU()
}

// visitOwners visits all inodes whose owner is known. An inode that is removed
// meanwhile is no error.
func (p *Probe) visitOwners(visit func(attributionInodeKey) error) error {
	b := &p.buffers
	if b.ownerKeys == nil {
		b.ownerKeys = make([]attributionInodeKey, batchEntries)
		b.ownerValues = make([]uint64, batchEntries)
	}
	var failed error
	err := readAll(p.objects.Owners, b.ownerKeys, b.ownerValues, func(n int) {
		for _, key := range b.ownerKeys[:n] {
			if err := visit(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				failed = err
			}
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("cannot read the owners of inodes: %w", err)
	}
	return nil
}
