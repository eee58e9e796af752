package ext4test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/needs"
)

// attempts of a comparison. On a busy host of the kind that SeenWrites is for, about
// one of 20 is void.
const attempts = 20

// Compare runs a comparison of what BPF programs count with what a disk counts, in a
// test of its own, and again as long as it reports that it is void: see SeenWrites.
func Compare(t *testing.T, compare func(t *testing.T) (void bool)) {
	t.Helper()
	for n := range attempts {
		void := false
		t.Run(fmt.Sprintf("attempt %d", n+1), func(t *testing.T) { void = compare(t) })
		if !void || t.Failed() {
			return
		}
	}
	t.Errorf("in each of %d attempts the kernel ran no BPF program for some writes of the disk", attempts)
}

// SeenWrites counts the bytes of a disk's completed writes in a BPF program that does
// nothing else. There are hosts whose kernel runs no programs while a certain process is
// the current one, which a completion can interrupt. No program sees these bytes, so a
// comparison with the counter of the disk is void.
type SeenWrites struct {
	disk                      blockdev.Loop
	sum                       *ebpf.Map
	writtenBefore, seenBefore uint64
}

// NewSeenWrites counts from now until the test ends.
func NewSeenWrites(t testing.TB, disk blockdev.Loop) *SeenWrites {
	t.Helper()
	sum, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sum.Close() })
	instructions, err := sumOfWrites(disk.Dev.Kernel(), sum)
	if err != nil {
		needs.That(t, false, err.Error())
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "block_rq_complete",
		License: "GPL", Instructions: instructions,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = program.Close() }()
	attached, err := link.AttachTracing(link.TracingOptions{Program: program})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = attached.Close() })
	// A write between two counters, here and in Missed, counts as missed.
	s := &SeenWrites{disk: disk, sum: sum, writtenBefore: writtenBytes(t, disk)}
	s.seenBefore = s.seen(t)
	return s
}

// Missed returns how many of the written bytes no program saw.
func (s *SeenWrites) Missed(t testing.TB) uint64 {
	t.Helper()
	seen := s.seen(t) - s.seenBefore
	written := writtenBytes(t, s.disk) - s.writtenBefore
	missed := written - min(written, seen)
	if missed != 0 {
		t.Logf("no program saw %d of %d bytes of %s", missed, written, s.disk.Name)
	}
	return missed
}

func (s *SeenWrites) seen(t testing.TB) uint64 {
	t.Helper()
	var sum uint64
	if err := s.sum.Lookup(uint32(0), &sum); err != nil {
		t.Fatal(err)
	}
	return sum
}

func writtenBytes(t testing.TB, disk blockdev.Loop) uint64 {
	t.Helper()
	stat, err := disk.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return stat.WriteBytes
}

// sumOfWrites are the instructions for the tracepoint block_rq_complete, whose
// arguments are a request, an error and the number of bytes.
func sumOfWrites(disk uint32, sum *ebpf.Map) (asm.Instructions, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, err
	}
	var errs []error
	offset := func(structure, member string) int16 {
		at, err := offsetOf(kernel, structure, member)
		errs = append(errs, err)
		return at
	}
	const (
		operationMask = 0xff // REQ_OP_MASK
		write         = 1    // REQ_OP_WRITE
		minorBits     = 20   // MINORBITS
	)
	instructions := asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 16, asm.DWord),
		asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.LoadMem(asm.R2, asm.R1, offset("request", "cmd_flags"), asm.Word),
		asm.And.Imm(asm.R2, operationMask),
		asm.JNE.Imm(asm.R2, write, "out"),
		asm.LoadMem(asm.R1, asm.R1, offset("request", "q"), asm.DWord),
		asm.LoadMem(asm.R1, asm.R1, offset("request_queue", "disk"), asm.DWord),
		asm.LoadMem(asm.R2, asm.R1, offset("gendisk", "major"), asm.Word),
		asm.LSh.Imm(asm.R2, minorBits),
		asm.LoadMem(asm.R1, asm.R1, offset("gendisk", "first_minor"), asm.Word),
		asm.Or.Reg(asm.R2, asm.R1),
		asm.JNE.Imm32(asm.R2, int32(disk), "out"),
		asm.Mov.Reg32(asm.R6, asm.R6),
		asm.LoadMapValue(asm.R1, sum.FD(), 0),
		asm.AddAtomic.Mem(asm.R1, asm.R6, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}
	return instructions, errors.Join(errs...)
}

func offsetOf(kernel *btf.Spec, structure, member string) (int16, error) {
	var found *btf.Struct
	if err := kernel.TypeByName(structure, &found); err != nil {
		return 0, fmt.Errorf("a kernel that describes struct %s: %w", structure, err)
	}
	for _, m := range found.Members {
		if m.Name == member {
			return int16(m.Offset.Bytes()), nil
		}
	}
	return 0, fmt.Errorf("a kernel whose struct %s has the field %s", structure, member)
}
