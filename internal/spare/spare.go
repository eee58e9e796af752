package spare

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// The maps of the spares, with one entry each.
const (
	notesMap = "spare_notes" // the notes of the first programs
	takenMap = "spare_taken" // a counter for each program: how many events its spare had in its place
)

const (
	// The place of a note depends on the task. If two tasks had the same one at the same
	// time, the work of an event could be done twice.
	placesLog2  = 14
	maxPrograms = 64
)

// Spares is how many a program has. In a guest with two processors and eight busy containers
// one was skipped for 11 of some 1,600 events that a program was skipped for.
const Spares = 2

const placeBytes = 8 * Spares // a note of the program, and of each spare but the last

const suffix = " (spare "

// nameOf is the name of a spare, from 1 on.
func nameOf(program string, spare int) string { return fmt.Sprintf("%s%s%d)", program, suffix, spare) }

// Preemptible reports whether a task can be preempted in a program at a tracepoint:
// include/linux/tracepoint.h then has a guard with this type, which nothing else uses.
func Preemptible(kernel *btf.Spec) (bool, error) {
	_, err := kernel.AnyTypeByName("class_srcu_fast_notrace_t")
	if errors.Is(err, btf.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot look up how the kernel calls tracepoints: %w", err)
	}
	return true, nil
}

// atomicEvents are tracepoints at which no task can be preempted.
var atomicEvents = []string{"sched_switch"}

// Add adds the spares of each program to the specification. The programs must be of a type
// that the kernel attaches to tracepoints or functions.
func Add(spec *ebpf.CollectionSpec) error {
	names := slices.Sorted(maps.Keys(spec.Programs))
	if len(names) > maxPrograms {
		return fmt.Errorf("%d BPF programs are too many for spares", len(names))
	}
	spec.Maps[notesMap] = &ebpf.MapSpec{Name: notesMap, Type: ebpf.Array, KeySize: 4, ValueSize: placeBytes << placesLog2, MaxEntries: 1}
	spec.Maps[takenMap] = &ebpf.MapSpec{Name: takenMap, Type: ebpf.Array, KeySize: 4, ValueSize: 8 * maxPrograms, MaxEntries: 1}
	for n, name := range names {
		first := spec.Programs[name]
		if slices.Contains(atomicEvents, first.AttachTo) {
			continue
		}
		plain := first.Copy()
		err := prepend(first, note(n))
		for number := 1; number <= Spares; number++ {
			spare := plain.Copy()
			err = errors.Join(err, prepend(spare, look(n, number)))
			spec.Programs[nameOf(name, number)] = spare
		}
		if err != nil {
			return fmt.Errorf("cannot add spares for the BPF program %s: %w", name, err)
		}
	}
	return nil
}

// place are the instructions that find the place for the notes of the current task: R2 points
// to it afterwards, and R6 is the context. The verifier knows its bounds.
func place(n int) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.FnGetCurrentTask.Call(),
		asm.Add.Imm(asm.R0, int32(n)),
		asm.LoadImm(asm.R1, -0x61c8864680b583eb, asm.DWord), // the golden ratio, as in place_of()
		asm.Mul.Reg(asm.R0, asm.R1),
		asm.RSh.Imm(asm.R0, 64-placesLog2),
		asm.Mul.Imm(asm.R0, placeBytes),
		asm.LoadMapValue(asm.R2, 0, 0).WithReference(notesMap),
		asm.Add.Reg(asm.R2, asm.R0),
	}
}

// noteOf is where in a place the note is of the program (0) or of a spare.
func noteOf(program int) int16 { return int16(8 * program) }

// note are the instructions of a first program. The address of an event's arguments is on
// the stack of its task or interrupt, and the same for all programs that have the event.
func note(n int) asm.Instructions {
	return append(place(n),
		asm.StoreMem(asm.R2, noteOf(0), asm.R6, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R6),
	)
}

// look are the instructions of a spare. It looks for the notes of those before it, and replaces
// one by its own. The last one removes it, so that it is not taken for one about a later event
// with its arguments at the same address.
func look(n, number int) asm.Instructions {
	leave := func() (own asm.Instructions) {
		if number < Spares {
			own = append(own, asm.StoreMem(asm.R2, noteOf(number), asm.R6, asm.DWord))
		}
		return own
	}
	look := place(n)
	for before := number - 1; before >= 0; before-- {
		look = append(look, asm.LoadMem(asm.R1, asm.R2, noteOf(before), asm.DWord).WithSymbol(label(number, before+1)))
		look = append(look, asm.JNE.Reg(asm.R1, asm.R6, label(number, before)))
		look = append(look, asm.Mov.Imm(asm.R0, 0), asm.StoreMem(asm.R2, noteOf(before), asm.R0, asm.DWord))
		look = append(append(look, leave()...), asm.Return())
	}
	work := append(leave(),
		asm.LoadMapValue(asm.R2, 0, uint32(8*n)).WithReference(takenMap),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R2, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R6),
	)
	work[0] = work[0].WithSymbol(label(number, 0))
	return append(look, work...)
}

// label is behind what a spare does with the note of the program or spare with that number.
func label(spare, note int) string {
	if note == spare {
		return "" // where it begins to look
	}
	return fmt.Sprintf("spare_after_%d", note)
}

// prepend puts instructions in front of a program's. The first one has the name of the
// function, its type and its line.
func prepend(program *ebpf.ProgramSpec, before asm.Instructions) error {
	if len(program.Instructions) == 0 {
		return errors.New("it has no instructions")
	}
	rest := slices.Clone(program.Instructions)
	first := rest[0]
	before[0] = btf.WithFuncMetadata(before[0].WithSymbol(first.Symbol()).WithSource(first.Source()), btf.FuncMetadata(&first))
	rest[0] = btf.WithFuncMetadata(first.WithSymbol(""), nil)
	program.Instructions = append(before, rest...)
	return nil
}
