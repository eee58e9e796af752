// Package disktime measures how long requests wait in the scheduler's queue of a
// disk, and how long the disk then takes for them: by disk, cgroup and class. The
// BPF program (bpf/, GPL-2.0) adds up, and this package reads the sums. Nothing is
// attached until a [Probe] is opened.
package disktime

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/journal"
)

// ErrUnsupported is wrapped by errors that name a missing feature of the host.
var ErrUnsupported = errors.New("this host cannot time the requests of disks")

// Class is the kind of a request.
type Class uint32

// The classes, the same as in bpf/disktime.bpf.c.
const (
	Read Class = iota
	// Data is a write of file data.
	Data
	// Metadata is a write of the journal, or of metadata in place.
	Metadata
	// Flush is one of the disk's cache. It is charged to no cgroup.
	Flush
)

// Sums are those of the requests that ended.
type Sums struct {
	Requests uint64
	Bytes    uint64
	// QueuedNanoseconds is the time in the scheduler, ServedNanoseconds that on the
	// disk.
	QueuedNanoseconds, ServedNanoseconds uint64
	// AloneNanoseconds is the part of ServedNanoseconds after the request before it on the
	// disk has ended. A disk that serves one at a time needs so long for the requests.
	AloneNanoseconds uint64
}

// Add returns the sum of two.
func (s Sums) Add(o Sums) Sums {
	return Sums{
		s.Requests + o.Requests, s.Bytes + o.Bytes,
		s.QueuedNanoseconds + o.QueuedNanoseconds, s.ServedNanoseconds + o.ServedNanoseconds, s.AloneNanoseconds + o.AloneNanoseconds,
	}
}

// Less returns what was added since an earlier reading.
func (s Sums) Less(before Sums) Sums {
	return Sums{
		s.Requests - min(s.Requests, before.Requests), s.Bytes - min(s.Bytes, before.Bytes),
		s.QueuedNanoseconds - min(s.QueuedNanoseconds, before.QueuedNanoseconds),
		s.ServedNanoseconds - min(s.ServedNanoseconds, before.ServedNanoseconds),
		s.AloneNanoseconds - min(s.AloneNanoseconds, before.AloneNanoseconds),
	}
}

// Key is who sent the requests of a sum, and where.
type Key struct {
	// Cgroup is the kernfs id of the cgroup that the kernel charges; 0: none.
	Cgroup uint64
	Class  Class
}

// Moves are those of the disk's head to small requests (32 KiB at most), as far as their
// sectors tell. The way to a request is from the end of the one that was sent to the disk
// before it. The sums are those of a fit of time by the root of the way.
type Moves struct {
	Requests uint64
	// Roots is the sum of the square roots of the ways in sectors of 512 bytes, Sectors that
	// of the ways, rounded down to a square.
	Roots, Sectors uint64
	// AloneMicroseconds is as in [Sums]; Products is the sum of root and time, multiplied.
	AloneMicroseconds, Products uint64
}

// Add returns the sum of two.
func (m Moves) Add(o Moves) Moves {
	return Moves{m.Requests + o.Requests, m.Roots + o.Roots, m.Sectors + o.Sectors, m.AloneMicroseconds + o.AloneMicroseconds, m.Products + o.Products}
}

// Less returns what was added since an earlier reading.
func (m Moves) Less(before Moves) Moves {
	return Moves{
		m.Requests - min(m.Requests, before.Requests), m.Roots - min(m.Roots, before.Roots), m.Sectors - min(m.Sectors, before.Sectors),
		m.AloneMicroseconds - min(m.AloneMicroseconds, before.AloneMicroseconds), m.Products - min(m.Products, before.Products),
	}
}

// MoveKey is who sent the requests of a sum of moves, and who sent the one before each. No
// key has the class Flush.
type MoveKey struct{ Of, Before Key }

// Probe is the kernel side.
type Probe struct {
	objects    disktimeObjects
	links      []link.Link
	recognises bool
}

// RecognisesCommits reports whether the writes of commits have the class Metadata on every
// kernel. Otherwise they have it only where jbd2 marks them.
func (p *Probe) RecognisesCommits() bool { return p.recognises }

// Open loads the programs and attaches them. It needs root and a kernel with BTF,
// 5.11 or newer. It changes nothing on the host.
func Open() (*Probe, error) { return open(func(*ebpf.CollectionSpec) error { return nil }) }

// open opens a probe with changed programs.
func open(change func(*ebpf.CollectionSpec) error) (*Probe, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: attaching BPF programs needs root", ErrUnsupported)
	}
	cache := btf.NewCache()
	if err := journal.CheckOperations(cache); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	spec, err := loadDisktime()
	if err == nil {
		err = change(spec)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the compiled BPF programs: %w", err)
	}
	p := &Probe{}
	if err := spec.LoadAndAssign(&p.objects, &ebpf.CollectionOptions{Cache: cache}); err != nil {
		return nil, fmt.Errorf("%w: cannot load the BPF programs: %w", ErrUnsupported, err)
	}
	ends, known, err := journal.FindWriteEnds()
	if err == nil && known {
		err = errors.Join(p.objects.CommitEnds.Set(ends.Commit), p.objects.BufferEnds.Set(ends.Buffer))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot tell the BPF programs the kernel's functions: %w", err), p.Close())
	}
	p.recognises = known
	for _, program := range []*ebpf.Program{p.objects.RqIssue, p.objects.RqComplete} {
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w: cannot attach to the tracepoints block_rq_*: %w", ErrUnsupported, err), p.Close())
		}
		p.links = append(p.links, l)
	}
	return p, nil
}

// Reading has the sums of all disks since Open, or since an earlier reading.
type Reading struct {
	Sums  map[blockdev.Dev]map[Key]Sums
	Moves map[blockdev.Dev]map[MoveKey]Moves
}

// Less returns what was added since an earlier reading, without sums of no request.
func (r Reading) Less(before Reading) Reading {
	since := Reading{Sums: make(map[blockdev.Dev]map[Key]Sums), Moves: make(map[blockdev.Dev]map[MoveKey]Moves)}
	for disk, sums := range r.Sums {
		for key, sum := range sums {
			if added := sum.Less(before.Sums[disk][key]); added.Requests > 0 {
				put(since.Sums, disk, key, added)
			}
		}
	}
	for disk, moves := range r.Moves {
		for key, sum := range moves {
			if added := sum.Less(before.Moves[disk][key]); added.Requests > 0 {
				put(since.Moves, disk, key, added)
			}
		}
	}
	return since
}

func put[K comparable, V any](all map[blockdev.Dev]map[K]V, disk blockdev.Dev, key K, value V) {
	if all[disk] == nil {
		all[disk] = make(map[K]V)
	}
	all[disk][key] = value
}

// ReadAll returns the sums of all disks.
func (p *Probe) ReadAll() (r Reading, err error) {
	if r.Sums, err = p.sums(); err != nil {
		return Reading{}, err
	}
	if r.Moves, err = p.moves(); err != nil {
		return Reading{}, err
	}
	return r, nil
}

// Read returns the sums of a disk since Open.
func (p *Probe) Read(disk blockdev.Dev) (map[Key]Sums, error) {
	all, err := p.sums()
	return all[disk], err
}

// Moves returns the moves of a disk's head since Open.
func (p *Probe) Moves(disk blockdev.Dev) (map[MoveKey]Moves, error) {
	all, err := p.moves()
	return all[disk], err
}

func (p *Probe) sums() (map[blockdev.Dev]map[Key]Sums, error) {
	found := make(map[blockdev.Dev]map[Key]Sums)
	var key disktimeRequestKey
	var sums disktimeRequestSums
	entries := p.objects.Requests.Iterate()
	for entries.Next(&key, &sums) {
		put(found, blockdev.DevOfKernel(key.Disk), Key{Cgroup: key.Cgroup, Class: Class(key.Class)},
			Sums{sums.Requests, sums.Bytes, sums.QueuedNs, sums.ServedNs, sums.AloneNs})
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("cannot read the times of requests: %w", err)
	}
	return found, nil
}

func (p *Probe) moves() (map[blockdev.Dev]map[MoveKey]Moves, error) {
	found := make(map[blockdev.Dev]map[MoveKey]Moves)
	var key disktimeMoveKey
	var sums disktimeMoveSums
	entries := p.objects.Moves.Iterate()
	for entries.Next(&key, &sums) {
		of, before := Key{key.Cgroup, Class(key.Class)}, Key{key.BeforeCgroup, Class(key.BeforeClass)}
		put(found, blockdev.DevOfKernel(key.Disk), MoveKey{of, before}, Moves{sums.Requests, sums.Roots, sums.Sectors, sums.AloneUs, sums.Products})
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("cannot read the moves between requests: %w", err)
	}
	return found, nil
}

// Close detaches everything; the kernel frees the programs and maps.
func (p *Probe) Close() error {
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, p.objects.Close())...)
}
