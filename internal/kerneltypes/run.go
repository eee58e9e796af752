package kerneltypes

import (
	"fmt"
	"regexp"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// rootOf finds the structure in the text of a relocation.
var rootOf = regexp.MustCompile(`^CORERelocation\(byte_off, [A-Za-z]+:"([^"]+)"`)

// value is what is known of a register.
type value struct {
	kind valueKind
	n    uint64 // the number, or of which argument
}

type valueKind uint8

const (
	unknown valueKind = iota
	number
	context  // the pointer to the arguments
	argument // the value of an argument
)

type registers [11]value

func (r *registers) join(o registers) (changed bool) {
	for i := range r {
		if r[i] != o[i] && r[i].kind != unknown {
			r[i] = value{}
			changed = true
		}
	}
	return changed
}

// run follows the instructions that can run, with the numbers that are known.
type run struct {
	program     *ebpf.ProgramSpec
	types       *Types
	relocations map[int]string
	arguments   []btf.FuncParam
	problems    []string
}

func (r *run) problem(at int, format string, arguments ...any) {
	text := fmt.Sprintf("instruction %d: ", at) + fmt.Sprintf(format, arguments...)
	if source := r.program.Instructions[at].Source(); source != nil {
		text += fmt.Sprintf(": %s", source)
	}
	r.problems = append(r.problems, text)
}

// function follows one function. Its arguments are not known, but for the first one of
// the program itself.
func (r *run) function(start int, program bool) error {
	instructions := r.program.Instructions
	offsets, indices := make([]int, len(instructions)), make(map[int]int)
	raw := 0
	for i := range instructions {
		offsets[i], indices[raw] = raw, i
		raw += int(instructions[i].Width())
	}
	states := make(map[int]*registers)
	var pending []int
	reach := func(at int, state registers) {
		if old := states[at]; old == nil {
			states[at] = &state
		} else if !old.join(state) {
			return
		}
		pending = append(pending, at)
	}
	var first registers
	if program {
		first[asm.R1] = value{kind: context}
	}
	reach(start, first)
	for len(pending) > 0 {
		at := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		state := *states[at]
		ins := instructions[at]
		next, jumps, target := true, false, 0
		class := ins.OpCode.Class()
		if class.IsJump() {
			switch op := ins.OpCode.JumpOp(); op {
			case asm.Exit:
				next = false
			case asm.Call:
				for i := asm.R0; i <= asm.R5; i++ {
					state[i] = value{}
				}
			default:
				next, jumps = branches(ins, state)
				distance := int(ins.Offset)
				if op == asm.Ja && class == asm.Jump32Class {
					distance = int(ins.Constant)
				}
				var ok bool
				if target, ok = indices[offsets[at]+int(ins.Width())+distance]; !ok {
					return fmt.Errorf("%s: instruction %d jumps to no instruction", r.program.Name, at)
				}
			}
		} else {
			state = r.step(state, ins)
		}
		if next && at+1 < len(instructions) {
			reach(at+1, state)
		}
		if jumps {
			reach(target, state)
		}
	}
	for at := start; at < len(instructions); at++ {
		if state := states[at]; state != nil {
			r.look(at, *state)
		}
	}
	return nil
}

// look reports what is wrong with an instruction that can run.
func (r *run) look(at int, state registers) {
	ins := r.program.Instructions[at]
	if ins.IsBuiltinCall() && ins.Constant == btf.COREBadRelocationSentinel ||
		ins.OpCode.IsDWordLoad() && ins.Dst == asm.R10 {
		r.problem(at, "the kernel does not have %s", r.relocations[at])
		return
	}
	if ins.IsKfuncCall() && !r.types.HasFunction(ins.Reference()) {
		r.problem(at, "the kernel has no function %s", ins.Reference())
		return
	}
	if ins.OpCode.Class() != asm.LdXClass || r.arguments == nil {
		return
	}
	switch from := state[ins.Src]; from.kind {
	case context:
		if int(ins.Offset)/8 >= len(r.arguments) {
			r.problem(at, "%s has %d arguments, and number %d is read", r.program.AttachTo, len(r.arguments), ins.Offset/8+1)
		}
	case argument:
		root := rootOf.FindStringSubmatch(r.relocations[at])
		if root == nil || from.n >= uint64(len(r.arguments)) {
			return
		}
		given := r.arguments[from.n]
		if is := pointsTo(given.Type); is != essential(root[1]) {
			r.problem(at, "argument %s of %s points to %q, and is read as %q", given.Name, r.program.AttachTo, is, root[1])
		}
	}
}

func pointsTo(t btf.Type) string {
	if pointer, ok := btf.UnderlyingType(t).(*btf.Pointer); ok {
		return btf.UnderlyingType(pointer.Target).TypeName()
	}
	return ""
}

// step returns the registers after an instruction that is no jump.
func (r *run) step(state registers, ins asm.Instruction) registers {
	switch class := ins.OpCode.Class(); class {
	case asm.ALUClass, asm.ALU64Class:
		operand := state[ins.Src]
		if ins.OpCode.Source() == asm.ImmSource {
			operand = value{number, uint64(ins.Constant)}
		}
		state[ins.Dst] = compute(ins.OpCode.ALUOp(), class == asm.ALU64Class, state[ins.Dst], operand)
	case asm.LdClass:
		state[ins.Dst] = value{}
		if ins.IsConstantLoad(asm.DWord) && ins.Reference() == "" {
			state[ins.Dst] = value{number, uint64(ins.Constant)}
		} else if ins.OpCode.IsDWordLoad() && !ins.IsLoadFromMap() && !ins.IsLoadOfFunctionPointer() &&
			ins.Reference() != "" && !r.types.HasFunction(ins.Reference()) {
			state[ins.Dst] = value{number, 0} // the address of a function that the kernel lacks
		}
	case asm.LdXClass:
		from := state[ins.Src]
		state[ins.Dst] = value{}
		if from.kind == context && ins.Offset >= 0 {
			state[ins.Dst] = value{argument, uint64(ins.Offset) / 8}
		}
	case asm.StXClass:
		if ins.OpCode.Mode() == asm.AtomicMode {
			state[ins.Src], state[asm.R0] = value{}, value{}
		}
	}
	return state
}

func compute(op asm.ALUOp, wide bool, a, b value) value {
	if op == asm.Mov {
		if wide {
			return b
		}
		a, b, op = b, value{number, 0}, asm.Or // keeps the lower half
	}
	if a.kind != number || b.kind != number {
		return value{}
	}
	x, y := a.n, b.n
	if !wide {
		x, y = uint64(uint32(x)), uint64(uint32(y))
	}
	bits := uint64(64)
	if !wide {
		bits = 32
	}
	switch op {
	case asm.Add:
		x += y
	case asm.Sub:
		x -= y
	case asm.Mul:
		x *= y
	case asm.Or:
		x |= y
	case asm.And:
		x &= y
	case asm.Xor:
		x ^= y
	case asm.LSh:
		x <<= y % bits
	case asm.RSh:
		x >>= y % bits
	default:
		return value{}
	}
	if !wide {
		x = uint64(uint32(x))
	}
	return value{number, x}
}

// branches reports whether a jump can go on with the next instruction, and with its target.
func branches(ins asm.Instruction, state registers) (next, jumps bool) {
	op := ins.OpCode.JumpOp()
	if op == asm.Ja {
		return false, true
	}
	a, b := state[ins.Dst], state[ins.Src]
	if ins.OpCode.Source() == asm.ImmSource {
		b = value{number, uint64(ins.Constant)}
	}
	if a.kind != number || b.kind != number {
		return true, true
	}
	x, y := a.n, b.n
	signedX, signedY := int64(x), int64(y)
	if ins.OpCode.Class() == asm.Jump32Class {
		x, y = uint64(uint32(x)), uint64(uint32(y))
		signedX, signedY = int64(int32(x)), int64(int32(y))
	}
	var holds bool
	switch op {
	case asm.JEq:
		holds = x == y
	case asm.JNE:
		holds = x != y
	case asm.JGT:
		holds = x > y
	case asm.JGE:
		holds = x >= y
	case asm.JLT:
		holds = x < y
	case asm.JLE:
		holds = x <= y
	case asm.JSet:
		holds = x&y != 0
	case asm.JSGT:
		holds = signedX > signedY
	case asm.JSGE:
		holds = signedX >= signedY
	case asm.JSLT:
		holds = signedX < signedY
	case asm.JSLE:
		holds = signedX <= signedY
	default:
		return true, true
	}
	return !holds, holds
}
