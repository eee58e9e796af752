package blame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
)

// endedCalls reads the calls that have ended out of the kernel. There are two buffers
// of them; see bpf/sums.h.
type endedCalls struct {
	variables endedVariables
	memory    *ebpf.Memory // both buffers
	second    bool         // the programs use the second one
	barrier   barrier
	bytes     []byte
}

// endedVariables are variables of the programs.
type endedVariables struct {
	Buffer *ebpf.Variable `ebpf:"ended_buffer"`
	First  *ebpf.Variable `ebpf:"ended_first"`
	Second *ebpf.Variable `ebpf:"ended_second"`
}

const endedCallSize = int(unsafe.Sizeof(programsEndedCall{}))

func (e *endedCalls) open(calls *ebpf.Map) (err error) {
	if e.memory, err = calls.Memory(); err != nil {
		return fmt.Errorf("cannot read the calls that have ended: %w", err)
	}
	return e.barrier.open()
}

func (e *endedCalls) close() error { return e.barrier.close() }

// take calls count for each call since it was called last, and waited with the sums of
// those that waited for the same commit.
func (e *endedCalls) take(count func(call Call, bucket Bucket, calls uint64), waited func(Wait)) error {
	counter, first, entries := e.variables.First, 0, int(e.memory.Size())/endedCallSize/2
	if e.second {
		counter, first = e.variables.Second, entries
	}
	var calls uint32
	if err := counter.Get(&calls); err != nil {
		return fmt.Errorf("cannot read the number of calls that have ended: %w", err)
	}
	if calls == 0 {
		return nil
	}
	e.second = !e.second
	var buffer uint32
	if e.second {
		buffer = 1
	}
	if err := e.variables.Buffer.Set(buffer); err != nil {
		return fmt.Errorf("cannot change the buffer of calls that have ended: %w", err)
	}
	if err := e.barrier.wait(); err != nil {
		return err
	}
	// From here on no program uses the buffer.
	if err := counter.Get(&calls); err != nil {
		return fmt.Errorf("cannot read the number of calls that have ended: %w", err)
	}
	if err := e.read(first, min(int(calls), entries), count, waited); err != nil {
		return err
	}
	if err := counter.Set(uint32(0)); err != nil {
		return fmt.Errorf("cannot empty the buffer of calls that have ended: %w", err)
	}
	return nil
}

func (e *endedCalls) read(first, n int, count func(Call, Bucket, uint64), waited func(Wait)) error {
	if len(e.bytes) < n*endedCallSize {
		e.bytes = make([]byte, n*endedCallSize)
	}
	bytes := e.bytes[:n*endedCallSize]
	if _, err := e.memory.ReadAt(bytes, int64(first*endedCallSize)); err != nil {
		return fmt.Errorf("cannot read the calls that have ended: %w", err)
	}
	sums := make(map[programsWaitKey]*Wait)
	for ; len(bytes) > 0; bytes = bytes[endedCallSize:] {
		var ended programsEndedCall
		if _, err := binary.Decode(bytes, binary.NativeEndian, &ended); err != nil {
			return fmt.Errorf("cannot decode a call that has ended: %w", err)
		}
		key := ended.Key
		call := Call{Dev: key.Dev, Cgroup: key.Cgroup, Operation: Operation(key.Operation)}
		count(call, bucketOf(ended.Total), 1)
		sum := sums[key]
		if sum == nil {
			sum = &Wait{Call: call, Tid: key.Tid, Memory: key.Memory != 0}
			sums[key] = sum
		}
		for phase, ns := range ended.Wait.Ns {
			sum.Nanoseconds[phase] += ns
		}
	}
	for _, sum := range sums {
		waited(*sum)
	}
	return nil
}

// barrier waits for BPF programs.
type barrier struct{ inner, outer *ebpf.Map }

func (b *barrier) open() (err error) {
	spec := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	if b.inner, err = ebpf.NewMap(spec); err == nil {
		b.outer, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: spec})
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot make the maps by which to wait for BPF programs: %w", err), b.close())
	}
	return nil
}

// wait returns when no program is at work that was when it was called. The kernel waits
// for that after a change of a map of maps, so that nobody uses the old map
// (maybe_wait_bpf_programs in kernel/bpf/syscall.c).
func (b *barrier) wait() error {
	if err := b.outer.Put(uint32(0), b.inner); err != nil {
		return fmt.Errorf("cannot wait for BPF programs: %w", err)
	}
	return nil
}

func (b *barrier) close() error {
	var errs []error
	for _, m := range []*ebpf.Map{b.inner, b.outer} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}
