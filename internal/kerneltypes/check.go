package kerneltypes

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Check resolves a program's relocations (CO-RE) against the types of a kernel, and
// returns what the verifier would refuse, or what would read something else:
//
//   - an instruction that needs a field, type or value that the kernel does not have, and
//     that can run there. Code behind a test for the field does not run;
//   - the use of an argument that the tracepoint or function does not have;
//   - the use of an argument as a pointer to another structure than the kernel's.
func Check(program *ebpf.ProgramSpec, types *Types) ([]string, error) {
	program = program.Copy()
	var relocations []*btf.CORERelocation
	var at []int
	for i := range program.Instructions {
		if r := btf.CORERelocationMetadata(&program.Instructions[i]); r != nil {
			relocations, at = append(relocations, r), append(at, i)
		}
	}
	builder, err := btf.NewBuilder(nil, nil)
	if err != nil {
		return nil, err
	}
	fixups, err := btf.CORERelocate(relocations, []*btf.Spec{types.Spec}, binary.LittleEndian, builder.Add)
	if err != nil {
		return nil, err
	}
	text := make(map[int]string)
	for i, fixup := range fixups {
		if err := fixup.Apply(&program.Instructions[at[i]]); err != nil {
			return nil, fmt.Errorf("%s: %w", relocations[i], err)
		}
		text[at[i]] = relocations[i].String()
	}
	arguments, problem := attachedTo(program, types)
	if problem != "" {
		return []string{problem}, nil
	}
	r := run{program: program, types: types, relocations: text, arguments: arguments}
	for _, start := range functionStarts(program.Instructions) {
		if err := r.function(start, start == 0); err != nil {
			return nil, err
		}
	}
	return r.problems, nil
}

// attachedTo returns the arguments of what a program attaches to; nil: they are not known.
func attachedTo(program *ebpf.ProgramSpec, types *Types) (arguments []btf.FuncParam, problem string) {
	if program.Type != ebpf.Tracing {
		return nil, ""
	}
	if program.AttachType == ebpf.AttachTraceRawTp {
		var typedef *btf.Typedef
		if types.TypeByName(tracepointPrefix+program.AttachTo, &typedef) != nil {
			return nil, "there is no tracepoint " + program.AttachTo
		}
		if pointer, ok := typedef.Type.(*btf.Pointer); ok {
			if proto, ok := pointer.Target.(*btf.FuncProto); ok && len(proto.Params) > 0 {
				return proto.Params[1:], "" // the first is the tracepoint's own
			}
		}
		return nil, "the type of the tracepoint " + program.AttachTo + " is no function"
	}
	proto := functionNamed(types, program.AttachTo)
	if proto == nil {
		return nil, "there is no function " + program.AttachTo
	}
	arguments = proto.Params
	if program.AttachType == ebpf.AttachTraceFExit {
		arguments = append(arguments[:len(arguments):len(arguments)], btf.FuncParam{Name: "return", Type: proto.Return})
	}
	return arguments, ""
}

// functionNamed returns the type of a function; nil: there is none, or it is ambiguous.
func functionNamed(types *Types, name string) *btf.FuncProto {
	var found *btf.Func
	if types.TypeByName(name, &found) != nil {
		return nil
	}
	proto, _ := found.Type.(*btf.FuncProto)
	return proto
}

// HasFunction reports whether the kernel or one of its modules has a function.
func (t *Types) HasFunction(name string) bool {
	types, err := t.AnyTypesByName(name)
	return err == nil && slices.ContainsFunc(types, func(one btf.Type) bool { _, ok := one.(*btf.Func); return ok })
}

// kernelFunctions returns the functions of the kernel that a program calls.
func kernelFunctions(program *ebpf.ProgramSpec) []string {
	var names []string
	for _, ins := range program.Instructions {
		if ins.IsKfuncCall() && ins.Reference() != "" {
			names = append(names, ins.Reference())
		}
	}
	return names
}

// functionStarts returns the indices of the first instructions of functions.
func functionStarts(instructions asm.Instructions) []int {
	starts := []int{0}
	for i, ins := range instructions {
		if i > 0 && btf.FuncMetadata(&ins) != nil {
			starts = append(starts, i)
		}
	}
	return starts
}
