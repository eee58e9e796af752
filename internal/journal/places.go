package journal

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// placeReady is a value in bpf/maps.h: the place has a key and its sums.
const placeReady = 2

// visitPlaces visits all entries of an array that is in front of a hash map.
func visitPlaces[V any](m *ebpf.Map, values *[]V, visit func(at uint32, value V) error) error {
	if *values == nil {
		*values = make([]V, m.MaxEntries())
	}
	var cursor ebpf.MapBatchCursor
	keys := make([]uint32, len(*values))
	n, err := m.BatchLookup(&cursor, keys, *values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	for i := range n {
		if err := visit(keys[i], (*values)[i]); err != nil {
			return err
		}
	}
	return nil
}

// visitFilesystemPlaces visits the places that are taken.
func (p *Probe) visitFilesystemPlaces(visit func(at uint32, place attributionFilesystemPlace) error) error {
	return visitPlaces(p.objects.FilesystemPlaces, &p.buffers.filesystems, func(at uint32, place attributionFilesystemPlace) error {
		if place.Dev == 0 {
			return nil
		}
		return visit(at, place)
	})
}

// visitFilesystems visits what is known of each file system's device. again reads it
// once more.
func (p *Probe) visitFilesystems(visit func(dev uint32, state attributionFilesystem, again func() (attributionFilesystem, error)) error) error {
	err := p.visitFilesystemPlaces(func(at uint32, place attributionFilesystemPlace) error {
		return visit(place.Dev, place.Filesystem, func() (attributionFilesystem, error) {
			err := p.objects.FilesystemPlaces.Lookup(at, &place)
			return place.Filesystem, err
		})
	})
	if err != nil {
		return err
	}
	var dev uint32
	var state attributionFilesystem
	all := p.objects.Filesystems.Iterate()
	for all.Next(&dev, &state) {
		err := visit(dev, state, func() (later attributionFilesystem, err error) {
			err = p.objects.Filesystems.Lookup(dev, &later)
			return later, err
		})
		if err != nil {
			return err
		}
	}
	return all.Err()
}

// chargedPlaces are the sums of what was charged to cgroups that are in the array.
type chargedPlaces struct {
	sums runningSums[attributionChargedKey, attributionCharged]
	at   map[attributionChargedKey]uint32
}

func (c *chargedPlaces) collect(p *Probe, visit func(key attributionChargedKey, before, now attributionCharged)) error {
	if c.at == nil {
		c.at = make(map[attributionChargedKey]uint32)
	}
	err := visitPlaces(p.objects.ChargedPlaces, &p.buffers.charged, func(at uint32, place attributionChargedPlace) error {
		if place.State == placeReady {
			key := attributionChargedKey{Disk: place.Disk, Cgroup: place.Cgroup}
			c.at[key] = at
			c.sums.note(key, place.Sums, visit)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.forget(p, c.sums.isIdle)
}

// forget frees places. A program zeroes one before it uses it again.
func (c *chargedPlaces) forget(p *Probe, ended func(attributionChargedKey) bool) error {
	for key, at := range c.at {
		if !ended(key) {
			continue
		}
		if err := p.objects.ChargedPlaces.Put(at, attributionChargedPlace{}); err != nil {
			return fmt.Errorf("cannot free a place in the kernel's map: %w", err)
		}
		delete(c.at, key)
		delete(c.sums.last, key)
	}
	return nil
}
