package journal

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/daybook-project/daybook/internal/spare"
)

// DropUnattachable removes the programs of another package whose tracepoint this
// kernel does not have, or has with other arguments than the program reads. It
// returns the tracepoints that are left without a program. Variants of a program
// have the names of this package's. Errors about the host wrap ErrUnsupported.
func DropUnattachable(spec *ebpf.CollectionSpec, cache *btf.Cache) (missing []string, err error) {
	if err := checkBTF(); err != nil {
		return nil, err
	}
	served, err := servedTracepoints(spec, cache)
	if err != nil {
		return nil, err
	}
	for tracepoint, ok := range served {
		if !ok {
			missing = append(missing, tracepoint)
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// AddSpares adds the spares of each program, on a kernel that skips a program where a task was
// preempted in it.
func AddSpares(spec *ebpf.CollectionSpec, cache *btf.Cache) error {
	kernel, err := cache.Kernel()
	if err != nil {
		return fmt.Errorf("%w: cannot read the kernel's BTF: %w", ErrUnsupported, err)
	}
	preemptible, err := spare.Preemptible(kernel)
	if err != nil || !preemptible {
		return err
	}
	return spare.Add(spec)
}

// Owner is the cgroup that owns an inode of the file system that is mounted from
// a device (kernel dev_t). ok is false if it is not known: nobody changed the
// inode since the probe was opened, or it was evicted.
func (p *Probe) Owner(dev uint32, ino uint64) (cgroup uint64, ok bool, err error) {
	key := attributionInodeKey{Ino: ino, Dev: dev}
	var instance attributionInstance
	err = p.objects.Instances.Lookup(dev, &instance)
	if err == nil {
		key.Instance = instance.State & instanceMask
	} else if !errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, false, fmt.Errorf("cannot read which file system a device has: %w", err)
	}
	err = p.objects.Owners.Lookup(key, &cgroup)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("cannot read the owner of an inode: %w", err)
	}
	return cgroup, cgroup != 0, nil
}
