package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/ringbuf"
)

// records reads the records of commits that have ended: from an array, or, with the
// programs for older kernels, from a ring buffer.
type records struct {
	memory *ebpf.Memory // of the array
	next   uint64       // the number of the next one, from 0 on
	read   *ebpf.Variable
	record attributionEndedCommit
	bytes  []byte

	ring *ringbuf.Reader
	raw  ringbuf.Record
}

const endedCommitSize = int64(unsafe.Sizeof(attributionEndedCommit{}))

// prepareRecords makes the map small that the programs do not use. Maps without entries do
// not exist.
func prepareRecords(spec *ebpf.CollectionSpec) {
	array := slices.ContainsFunc(spec.Programs["run_stats"].Instructions, func(i asm.Instruction) bool { return i.Reference() == "ended_commits" })
	if array {
		spec.Maps["commits"].MaxEntries = uint32(os.Getpagesize())
	} else {
		spec.Maps["ended_commits"].MaxEntries = 1
	}
}

func (r *records) open(o *attributionObjects) (err error) {
	r.read, r.bytes = o.CommitsRead, make([]byte, endedCommitSize)
	if r.memory, err = o.EndedCommits.Memory(); err == nil {
		r.ring, err = ringbuf.NewReader(o.Commits)
	}
	if err != nil {
		return fmt.Errorf("cannot read the records of commits: %w", err)
	}
	return nil
}

func (r *records) close() error {
	if r.ring == nil {
		return nil
	}
	return r.ring.Close()
}

// visit visits the commits that have ended since it was called last.
func (r *records) visit(visit func(*attributionCommit)) error {
	if err := r.visitArray(visit); err != nil {
		return err
	}
	for {
		r.ring.SetDeadline(time.Now())
		err := r.ring.ReadInto(&r.raw)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read the ring buffer of commits: %w", err)
		}
		if len(r.raw.RawSample) < int(unsafe.Sizeof(r.record.Commit)) {
			return fmt.Errorf("a commit record of %d bytes is too short", len(r.raw.RawSample))
		}
		if _, err := binary.Decode(r.raw.RawSample, binary.NativeEndian, &r.record.Commit); err != nil {
			return fmt.Errorf("cannot decode a commit record: %w", err)
		}
		visit(&r.record.Commit)
	}
}

// visitArray stops at a record that a program writes at present.
func (r *records) visitArray(visit func(*attributionCommit)) error {
	before, entries := r.next, uint64(int64(r.memory.Size())/endedCommitSize)
	const numberAt = int64(unsafe.Offsetof(attributionEndedCommit{}.Number))
	for {
		at := int64(r.next%entries) * endedCommitSize
		if _, err := r.memory.ReadAt(r.bytes[numberAt:], at+numberAt); err != nil {
			return fmt.Errorf("cannot read the records of commits: %w", err)
		}
		if binary.NativeEndian.Uint64(r.bytes[numberAt:]) != r.next+1 {
			break
		}
		// The program wrote the number last, so the rest is read after it.
		ordered.Add(1)
		if _, err := r.memory.ReadAt(r.bytes[:numberAt], at); err != nil {
			return fmt.Errorf("cannot read the records of commits: %w", err)
		}
		if _, err := binary.Decode(r.bytes, binary.NativeEndian, &r.record); err != nil {
			return fmt.Errorf("cannot decode a commit record: %w", err)
		}
		visit(&r.record.Commit)
		r.next++
	}
	if r.next == before {
		return nil
	}
	if err := r.read.Set(r.next); err != nil {
		return fmt.Errorf("cannot give the BPF programs the commits that were read: %w", err)
	}
	return nil
}

// ordered is changed to keep reads before the change from reads after it.
var ordered atomic.Uint32
