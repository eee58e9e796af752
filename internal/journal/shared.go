package journal

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
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
