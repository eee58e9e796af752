package journal

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/daybook-project/daybook/internal/needs"
)

// printing returns a program that prints, which passes the tracepoint bpf_trace_printk.
func printing(t *testing.T, spec ebpf.ProgramSpec) *ebpf.Program {
	t.Helper()
	spec.License = "GPL"
	spec.Instructions = asm.Instructions{
		asm.StoreImm(asm.R10, -8, 'x', asm.Word),
		asm.Mov.Reg(asm.R1, asm.R10),
		asm.Add.Imm(asm.R1, -8),
		asm.Mov.Imm(asm.R2, 2),
		asm.FnTracePrintk.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}
	program, err := ebpf.NewProgram(&spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return program
}

// A program that passes its own tracepoint is not run again there: that is a miss.
func TestSkippedRunsOfAProgramAreCounted(t *testing.T) {
	needs.Root(t)
	inner := printing(t, ebpf.ProgramSpec{Name: "inner", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "bpf_trace_printk"})
	l, err := link.AttachTracing(link.TracingOptions{Program: inner})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var m Misses
	if _, err := m.Since([]link.Link{l}); err != nil {
		t.Fatal(err)
	}
	outer := printing(t, ebpf.ProgramSpec{Name: "outer", Type: ebpf.RawTracepoint})
	const runs = 3
	for range runs {
		if _, err := outer.Run(&ebpf.RunOptions{Context: []uint64{0}}); err != nil {
			t.Fatal(err)
		}
	}
	if count, err := m.Since([]link.Link{l}); err != nil || count < runs {
		t.Errorf("%d skipped runs, %v; want at least %d", count, err, runs)
	}
	if count, err := m.Since(nil); err != nil || count != 0 {
		t.Errorf("without links %d, %v", count, err)
	}
}
