package journal

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
)

// Values in bpf/places.h.
const (
	placeFree  = 0
	placeReady = 2 // the place has a key and its sums
)

// places is an array of the programs' that is in front of a hash map.
type places[V any] struct {
	memory *ebpf.Memory // of the programs' variables
	start  int64        // of the array in it
	read   []V          // reused between reads to reduce allocations
}

func (a *places[V]) open(memory *ebpf.Memory, array *ebpf.VariableSpec) {
	a.memory, a.start = memory, int64(array.Offset)
	a.read = make([]V, uintptr(array.Size())/unsafe.Sizeof(*new(V)))
}

// asBytes is the memory of values.
func asBytes[V any](values []V) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), uintptr(len(values))*unsafe.Sizeof(*new(V)))
}

// field is where a field of an entry is in the memory.
func (a *places[V]) field(at uint32, offset uintptr) int64 {
	return a.start + int64(at)*int64(unsafe.Sizeof(*new(V))) + int64(offset)
}

// get reads an entry.
func (a *places[V]) get(at uint32) (V, error) {
	one := make([]V, 1)
	_, err := a.memory.ReadAt(asBytes(one), a.field(at, 0))
	return one[0], err
}

// set writes a field of an entry: a uint32 or a uint64.
func (a *places[V]) set(at uint32, offset uintptr, value any) error {
	bytes, err := binary.Append(nil, binary.NativeEndian, value)
	if err == nil {
		_, err = a.memory.WriteAt(bytes, a.field(at, offset))
	}
	return err
}

// visit visits all entries.
func (a *places[V]) visit(visit func(at uint32, value V) error) error {
	if _, err := a.memory.ReadAt(asBytes(a.read), a.start); err != nil {
		return err
	}
	for at, value := range a.read {
		if err := visit(uint32(at), value); err != nil {
			return err
		}
	}
	return nil
}

// visitFilesystemPlaces visits the places that are taken.
func (p *Probe) visitFilesystemPlaces(visit func(at uint32, place attributionFilesystemPlace) error) error {
	return p.filesystemPlaces.visit(func(at uint32, place attributionFilesystemPlace) error {
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
			later, err := p.filesystemPlaces.get(at)
			return later.Filesystem, err
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
	places[attributionChargedPlace]
	sums runningSums[attributionChargedKey, attributionCharged]
	at   map[attributionChargedKey]uint32
}

func (c *chargedPlaces) collect(visit func(key attributionChargedKey, before, now attributionCharged)) error {
	if c.at == nil {
		c.at = make(map[attributionChargedKey]uint32)
	}
	err := c.visit(func(at uint32, place attributionChargedPlace) error {
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
	return c.forget(c.sums.isIdle)
}

// forget frees places. A program zeroes one before it uses it again.
func (c *chargedPlaces) forget(ended func(attributionChargedKey) bool) error {
	for key, at := range c.at {
		if !ended(key) {
			continue
		}
		if err := c.set(at, unsafe.Offsetof(attributionChargedPlace{}.State), uint32(placeFree)); err != nil {
			return fmt.Errorf("cannot free a place in the memory of the BPF programs: %w", err)
		}
		delete(c.at, key)
		delete(c.sums.last, key)
	}
	return nil
}
