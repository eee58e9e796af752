package cgroup

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/needs"
)

// No file shows the weight that BFQ uses: it is bfq_group.entity.weight, which
// this test reads when BFQ dispatches a request of the group to the disk.
func TestKernelRestoreIsInForceNotOnlyInTheFile(t *testing.T) {
	tree := hostTree(t)
	restoreIsInForce(t, tree, hostCgroup(t, tree), newLoopDisk(t, "bfq"), newLoopDisk(t, "bfq"))
}

// restoreIsInForce is for two disks under BFQ and a new cgroup.
func restoreIsInForce(t *testing.T, tree *Tree, path string, disk, other testDisk) {
	inForce := watchWeight(t)
	w, err := tree.Weights(disk.dev, "bfq")
	if err != nil {
		t.Fatal(err)
	}
	wants := func(what string, d testDisk, want uint64) {
		t.Helper()
		d.write(tree, path, 64)
		if got := inForce(d.dev); got != want {
			t.Errorf("%s: weight %d is in force on %s; want %d", what, got, d.name, want)
		}
	}
	if err := tree.write(path, w.rule.deviceFile, other.dev.String()+" 333"); err != nil {
		t.Fatal(err)
	}
	wants("new cgroup", disk, 100)
	if err := w.Set(path, 700); err != nil {
		t.Fatal(err)
	}
	wants("after Set", disk, 700)

	// This shows why Restore does not just remove the weight: the kernel may
	// keep the old one in force.
	if err := tree.write(path, w.rule.deviceFile, disk.dev.String()+" default"); err != nil {
		t.Fatal(err)
	}
	disk.write(tree, path, 64)
	t.Logf("after the kernel's own default: file says 100, in force is %d", inForce(disk.dev))

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

// watchWeight returns a function that returns the weight that BFQ used for the
// last request of a cgroup, not the root, on a disk.
func watchWeight(t *testing.T) func(disk blockdev.Dev) uint64 {
	t.Helper()
	offset := structOffsets(t)
	weights, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 8, ValueSize: 4, MaxEntries: 1024})
	needs.That(t, err == nil, "BPF maps")
	t.Cleanup(func() { weights.Close() })

	// r6 walks from the request; each step reads a pointer or a number from the
	// kernel to the stack.
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
	program = append(program, load(asm.R6, offset("gendisk", "major"), 4, -16)...)
	program = append(program, load(asm.R6, offset("gendisk", "first_minor"), 4, -12)...)
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

	return func(disk blockdev.Dev) uint64 {
		t.Helper()
		value := make([]byte, 4)
		if err := weights.Lookup([2]uint32{disk.Major, disk.Minor}, value); err != nil {
			t.Fatalf("no request of the cgroup on %s: %v", disk, err)
		}
		return uint64(binary.NativeEndian.Uint32(value))
	}
}

// structOffsets returns the offset of a member in the structs of this kernel,
// or of its module bfq.
func structOffsets(t *testing.T) func(structName, member string) uint32 {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	needs.That(t, err == nil, "kernel BTF")
	module, _ := btf.LoadKernelModuleSpec("bfq")
	return func(structName, member string) uint32 {
		t.Helper()
		var s *btf.Struct
		err := kernel.TypeByName(structName, &s)
		if err != nil && module != nil {
			err = module.TypeByName(structName, &s)
		}
		needs.That(t, err == nil, "BTF of struct "+structName+" (BFQ built in, or its module)")
		offset, found := memberOffset(s.Members, member)
		needs.That(t, found, structName+"."+member)
		return offset
	}
}

// memberOffset also searches in members without a name.
func memberOffset(members []btf.Member, name string) (bytes uint32, found bool) {
	for _, m := range members {
		if m.Name == name {
			return m.Offset.Bytes(), true
		}
		if m.Name != "" {
			continue
		}
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if at, found := memberOffset(inner, name); found {
			return m.Offset.Bytes() + at, true
		}
	}
	return 0, false
}
