package journal

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

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
