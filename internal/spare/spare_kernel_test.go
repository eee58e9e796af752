package spare_test

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/spare"
)

// print are instructions that pass the tracepoint bpf_trace_printk.
var print = asm.Instructions{
	asm.StoreImm(asm.R10, -8, 'x', asm.Word),
	asm.Mov.Reg(asm.R1, asm.R10),
	asm.Add.Imm(asm.R1, -8),
	asm.Mov.Imm(asm.R2, 2),
	asm.FnTracePrintk.Call(),
}

// counting counts its runs for this process in the map "work", and passes its own tracepoint
// in each second one.
func counting() *ebpf.CollectionSpec {
	program := asm.Instructions{
		asm.FnGetCurrentPidTgid.Call(),
		asm.RSh.Imm(asm.R0, 32),
		asm.JNE.Imm(asm.R0, int32(os.Getpid()), "out"),
		asm.LoadMapValue(asm.R1, 0, 0).WithReference("work"),
		asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord),
		asm.Add.Imm(asm.R2, 1),
		asm.StoreMem(asm.R1, 0, asm.R2, asm.DWord),
		asm.And.Imm(asm.R2, 1),
		asm.JEq.Imm(asm.R2, 0, "out"),
	}
	program = append(append(program, print...), asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return())
	return &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{"work": {Name: "work", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}},
		Programs: map[string]*ebpf.ProgramSpec{"counting": {
			Name: "counting", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "bpf_trace_printk", License: "GPL", Instructions: program,
		}},
	}
}

// round is what happened in one of the rounds of a run: how many events the programs had, and
// how many were missed.
type round struct{ work, missed uint64 }

// run passes the tracepoint in two rounds.
func run(t *testing.T, spec *ebpf.CollectionSpec, times int) (rounds [2]round) {
	t.Helper()
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer collection.Close()
	programs := spare.Of(collection)
	if len(programs) != 1 {
		t.Fatalf("%d programs; want 1", len(programs))
	}
	l, err := programs["counting"].Attach(spare.Tracing)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	outer, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: "GPL", Instructions: append(print[:len(print):len(print)], asm.Mov.Imm(asm.R0, 0), asm.Return()),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Close()
	var misses journal.Misses
	for n := range rounds {
		if err := collection.Maps["work"].Put(uint32(0), uint64(0)); err != nil {
			t.Fatal(err)
		}
		for range times {
			if _, err := outer.Run(&ebpf.RunOptions{Context: []uint64{0}}); err != nil {
				t.Fatal(err)
			}
		}
		if rounds[n].missed, err = misses.Since([]link.Link{l}); err != nil {
			t.Fatal(err)
		}
		if err := collection.Maps["work"].Lookup(uint32(0), &rounds[n].work); err != nil {
			t.Fatal(err)
		}
	}
	return rounds
}

// An event that comes while a program is at work is one that the kernel skips it for. The
// spares are attached once that has happened.
func TestASpareHasTheEventsForWhichItsProgramIsSkipped(t *testing.T) {
	needs.Root(t)
	const times = 10
	for n, round := range run(t, counting(), times) {
		if round.work != times || round.missed == 0 {
			t.Fatalf("round %d without a spare: %d events were counted, and %d missed: the test shows nothing", n, round.work, round.missed)
		}
	}
	spec := counting()
	if err := spare.Add(spec); err != nil {
		t.Fatal(err)
	}
	rounds := run(t, spec, times)
	if first := rounds[0]; first.work != times || first.missed != times/2 {
		t.Errorf("before there was a reason for spares, %d events were counted, and %d missed; want %d and %d", first.work, first.missed, times, times/2)
	}
	if then := rounds[1]; then.work != 2*times || then.missed != 0 {
		t.Errorf("with spares %d events were counted, and %d missed; want %d and 0", then.work, then.missed, 2*times)
	}
}

func TestEachProgramHasASpareExceptWhereNoTaskIsPreempted(t *testing.T) {
	spec := counting()
	spec.Programs["switch"] = spec.Programs["counting"].Copy()
	spec.Programs["switch"].AttachTo = "sched_switch"
	if err := spare.Add(spec); err != nil {
		t.Fatal(err)
	}
	if n := len(spec.Programs); n != 2+spare.Spares {
		t.Errorf("%d programs; want two, and the spares of one", n)
	}
}
