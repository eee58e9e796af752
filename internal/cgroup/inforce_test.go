package cgroup

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/daybook-project/daybook/internal/needs"
)

// The weight that BFQ goes by is in no file: bfq_group.entity.weight, which
// this test reads when BFQ hands a request of the group to the disk.
func TestKernelRestoreIsInForceNotOnlyInTheFile(t *testing.T) {
	tree := hostTree(t)
	inForce := watchWeight(t)
	disk, other := newLoopDisk(t, "bfq"), newLoopDisk(t, "bfq")
	path := hostCgroup(t, tree)
	w, err := tree.Weights(disk.dev, "bfq")
	if err != nil {
		t.Fatal(err)
	}
	wants := func(what string, d loopDisk, want uint64) {
		t.Helper()
		d.write(tree, path, 64)
		if got := inForce(d.dev.Minor); got != want {
			t.Errorf("%s: weight %d is in force on %s; want %d", what, got, d.name, want)
		}
	}
	if err := tree.write(path, "blkio.bfq.weight_device", other.dev.String()+" 333"); err != nil {
		t.Fatal(err)
	}
	wants("new cgroup", disk, 100)
	if err := w.Set(path, 700); err != nil {
		t.Fatal(err)
	}
	wants("after Set", disk, 700)

	// Why Restore does not just take the weight away: this kernel, or one to
	// come, may do better than keep the old one in force.
	if err := tree.write(path, "blkio.bfq.weight_device", disk.dev.String()+" default"); err != nil {
		t.Fatal(err)
	}
	disk.write(tree, path, 64)
	t.Logf("after the kernel's own default: file says 100, in force is %d", inForce(disk.dev.Minor))

	if err := w.Set(path, 700); err != nil {
		t.Fatal(err)
	}
	wants("after Set", disk, 700)
	if err := w.Restore(path, Setting{Default: 100}); err != nil {
		t.Fatal(err)
	}
	wants("after Restore", disk, 100)
	wants("after Restore", other, 333)
}

// watchWeight gives a function that says which weight BFQ used for the last
// request of a cgroup, not the root, on the loop device of that minor number.
func watchWeight(t *testing.T) func(minor uint32) uint64 {
	t.Helper()
	offset := structOffsets(t)
	weights, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 64})
	needs.That(t, err == nil, "BPF maps")
	t.Cleanup(func() { weights.Close() })

	// r6 walks from the request; each step reads a pointer or a number from
	// the kernel to the stack
	load := func(from asm.Register, at uint32, size int32, stack int16) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R3, from), asm.Add.Imm(asm.R3, int32(at)),
			asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, int32(stack)),
			asm.Mov.Imm(asm.R2, size),
			asm.FnProbeReadKernel.Call(),
			asm.JNE.Imm(asm.R0, 0, "exit"),
		}
	}
	follow := func(at uint32) asm.Instructions {
		return append(load(asm.R6, at, 8, -8),
			asm.LoadMem(asm.R6, asm.RFP, -8, asm.DWord),
			asm.JEq.Imm(asm.R6, 0, "exit"))
	}
	program := asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord), // struct request *
		asm.Mov.Reg(asm.R7, asm.R6),
	}
	program = append(program, follow(offset("request", "q"))...)
	program = append(program, follow(offset("request_queue", "disk"))...)
	program = append(program, load(asm.R6, offset("gendisk", "major"), 4, -8)...)
	program = append(program, asm.LoadMem(asm.R1, asm.RFP, -8, asm.Word), asm.JNE.Imm(asm.R1, 7, "exit")) // loop
	program = append(program, load(asm.R6, offset("gendisk", "first_minor"), 4, -16)...)
	program = append(program, asm.Mov.Reg(asm.R6, asm.R7))
	program = append(program, follow(offset("request", "elv")+16)...) // struct bfq_queue *, elv.priv[1] after icq and priv[0]
	program = append(program, follow(offset("bfq_queue", "entity")+offset("bfq_entity", "parent"))...)
	program = append(program, load(asm.R6, offset("bfq_entity", "weight"), 4, -24)...)
	program = append(program,
		asm.LoadMapPtr(asm.R1, weights.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -16),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -24),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"),
		asm.Return(),
	)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: program})
	needs.That(t, err == nil, "BPF programs")
	t.Cleanup(func() { p.Close() })
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "block_rq_issue", Program: p})
	needs.That(t, err == nil, "the tracepoint block_rq_issue")
	t.Cleanup(func() { l.Close() })

	return func(minor uint32) uint64 {
		t.Helper()
		value := make([]byte, 4)
		if err := weights.Lookup(minor, value); err != nil {
			t.Fatalf("no request of the cgroup on loop minor %d: %v", minor, err)
		}
		return uint64(binary.NativeEndian.Uint32(value))
	}
}

// structOffsets gives the offset of a member in this kernel's structs.
func structOffsets(t *testing.T) func(structName, member string) uint32 {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	needs.That(t, err == nil, "kernel BTF")
	return func(structName, member string) uint32 {
		t.Helper()
		var s *btf.Struct
		err := kernel.TypeByName(structName, &s)
		needs.That(t, err == nil, "BTF of struct "+structName+" (BFQ built in)")
		for _, m := range s.Members {
			if m.Name == member {
				return m.Offset.Bytes()
			}
		}
		needs.That(t, false, structName+"."+member)
		return 0
	}
}
