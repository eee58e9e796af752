package synctime

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// ErrUnsupported is wrapped by errors that name a missing kernel feature.
var ErrUnsupported = errors.New("this host cannot time sync calls")

// Place selects the watched calls: those of the threads in a cgroup (its kernfs
// id, which is its directory's inode; without its descendants) on files of a
// file system.
type Place struct {
	Cgroup uint64
	// FileSystem is the number of the device or partition that it is on.
	FileSystem blockdev.Dev
}

// minorBits is that of the kernel's own dev_t (include/linux/kdev_t.h).
const minorBits = 20

func (p Place) key() synctimePlace {
	return synctimePlace{Cgroup: p.Cgroup, Dev: p.FileSystem.Major<<minorBits | p.FileSystem.Minor}
}

// Probe is the kernel side.
type Probe struct {
	objects synctimeObjects
	links   []link.Link
}

// Open loads the programs and attaches them. It needs root and a kernel with
// BTF, 5.11 or newer, and ext4 in it or loaded.
func Open() (*Probe, error) {
	p := &Probe{}
	if err := loadSynctimeObjects(&p.objects, nil); err != nil {
		return nil, fmt.Errorf("%w: cannot load the BPF programs: %w", ErrUnsupported, err)
	}
	for _, program := range []*ebpf.Program{p.objects.SyncEnter, p.objects.SyncExit} {
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w: cannot attach to the tracepoints ext4_sync_file_*: %w", ErrUnsupported, err), p.Close())
		}
		p.links = append(p.links, l)
	}
	return p, nil
}

// Watch starts counting the calls of a place, from zero.
func (p *Probe) Watch(place Place) error {
	if err := p.objects.Watched.Put(place.key(), synctimeLatencies{}); err != nil {
		return fmt.Errorf("cannot watch the sync calls of a cgroup: %w", err)
	}
	return nil
}

// Read returns the calls of a place since Watch, without those in progress.
func (p *Probe) Read(place Place) (Latencies, error) {
	var value synctimeLatencies
	if err := p.objects.Watched.Lookup(place.key(), &value); err != nil {
		return Latencies{}, fmt.Errorf("cannot read the sync calls of a cgroup: %w", err)
	}
	return summarize(value.Calls, value.DataOnly, value.Nanoseconds, &value.Buckets), nil
}

// Close detaches the programs.
func (p *Probe) Close() error {
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, p.objects.Close())...)
}
