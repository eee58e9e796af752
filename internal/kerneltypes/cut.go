package kerneltypes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Wanted is what programs name of a kernel.
type Wanted struct {
	// Types are names of structures, unions and enumerations.
	Types map[string]bool
	// Tracepoints and Functions are those that programs attach to or call.
	Tracepoints, Functions map[string]bool
	// Values are of enumerations without a name.
	Values []string
}

// Functions are those of the kernel whose addresses internal/journal looks up, Values those
// of enumerations without a name, and Enums those with one, besides what programs name.
var (
	Functions = []string{"end_bio_bh_io_sync", "bh_end_write", "journal_end_buffer_io_sync", "ext4_end_bio"}
	Values    = []string{"BIO_CLONED"}
	Enums     = []string{"req_op", "req_opf"}
)

// Objects reads all compiled BPF programs below the root of the repository, by file.
func Objects(root string) (map[string]*ebpf.CollectionSpec, error) {
	objects := make(map[string]*ebpf.CollectionSpec)
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_bpfel.o") {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if objects[name], err = ebpf.LoadCollectionSpec(path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	return objects, err
}

// Want returns what the programs of objects name, and Functions, Values and Enums.
func Want(objects map[string]*ebpf.CollectionSpec) Wanted {
	w := Wanted{Types: map[string]bool{}, Tracepoints: map[string]bool{}, Functions: map[string]bool{}, Values: Values}
	for _, function := range Functions {
		w.Functions[function] = true
	}
	for _, name := range Enums {
		w.Types[name] = true
	}
	for _, object := range objects {
		for t, err := range object.Types.All() {
			if err != nil {
				continue
			}
			switch t.(type) {
			case *btf.Struct, *btf.Union, *btf.Enum:
				w.Types[essential(t.TypeName())] = true
			}
		}
		for _, program := range object.Programs {
			switch {
			case program.Type == ebpf.Tracing && program.AttachType == ebpf.AttachTraceRawTp:
				w.Tracepoints[program.AttachTo] = true
			case program.Type == ebpf.Tracing:
				w.Functions[program.AttachTo] = true
			}
			for _, function := range kernelFunctions(program) {
				w.Functions[function] = true
			}
		}
	}
	delete(w.Types, "")
	return w
}

// essential returns the name of a type without the suffix of a variant, ___NAME.
func essential(name string) string {
	name, _, _ = strings.Cut(name, "___")
	return name
}

// Cut returns BTF of the wanted types of a kernel and its modules. Wanted structures keep
// all their fields. A pointer to another structure keeps its name only, and a structure
// inside of another one its size only, if it is not wanted and has a name.
func Cut(specs []*btf.Spec, w Wanted) ([]byte, error) {
	c := cutter{wanted: w, done: make(map[btf.Type]btf.Type), forward: make(map[string]btf.Type)}
	var roots []btf.Type
	for _, spec := range specs {
		for t, err := range spec.All() {
			if err != nil {
				return nil, err
			}
			if c.keeps(t) {
				roots = append(roots, t)
			}
		}
	}
	builder, err := btf.NewBuilder(nil, &btf.BuilderOptions{Deduplicate: true})
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		if _, err := builder.Add(c.cut(root)); err != nil {
			return nil, fmt.Errorf("cannot keep %s: %w", root, err)
		}
	}
	text, err := builder.Marshal(nil, &btf.MarshalOptions{Order: binary.LittleEndian})
	if err == nil && len(roots) == 0 {
		err = errors.New("none of the wanted types is there")
	}
	return text, err
}

type cutter struct {
	wanted  Wanted
	done    map[btf.Type]btf.Type
	forward map[string]btf.Type
}

func (c *cutter) keeps(t btf.Type) bool {
	name := t.TypeName()
	switch t := t.(type) {
	case *btf.Struct, *btf.Union:
		return c.wanted.Types[name]
	case *btf.Enum:
		return c.wanted.Types[name] || name == "" && slices.ContainsFunc(t.Values, func(v btf.EnumValue) bool { return slices.Contains(c.wanted.Values, v.Name) })
	case *btf.Typedef:
		tracepoint, ok := strings.CutPrefix(name, tracepointPrefix)
		return ok && c.wanted.Tracepoints[tracepoint]
	case *btf.Func:
		return c.wanted.Functions[name]
	}
	return false
}

// tracepointPrefix precedes the name of a tracepoint in that of its type.
const tracepointPrefix = "btf_trace_"

// cut returns a copy of a type without what it need not keep.
func (c *cutter) cut(t btf.Type) btf.Type {
	if of := c.done[t]; of != nil {
		return of
	}
	switch t := t.(type) {
	case *btf.Struct:
		to := &btf.Struct{Name: t.Name, Size: t.Size}
		c.done[t] = to
		if t.Name == "" || c.wanted.Types[t.Name] {
			to.Members = c.members(t.Members)
		}
		return to
	case *btf.Union:
		to := &btf.Union{Name: t.Name, Size: t.Size}
		c.done[t] = to
		if t.Name == "" || c.wanted.Types[t.Name] {
			to.Members = c.members(t.Members)
		}
		return to
	case *btf.Enum:
		to := &btf.Enum{Name: t.Name, Size: t.Size, Signed: t.Signed}
		if c.keeps(t) {
			to.Values = t.Values
		}
		c.done[t] = to
		return to
	case *btf.Pointer:
		to := &btf.Pointer{}
		c.done[t] = to
		to.Target = c.target(t.Target)
		return to
	case *btf.Array:
		return &btf.Array{Index: c.cut(t.Index), Type: c.cut(t.Type), Nelems: t.Nelems}
	case *btf.Typedef:
		if strings.HasPrefix(t.Name, tracepointPrefix) {
			pointer, ok := t.Type.(*btf.Pointer)
			if ok {
				return &btf.Typedef{Name: t.Name, Type: &btf.Pointer{Target: c.cut(pointer.Target)}}
			}
		}
		to := &btf.Typedef{Name: t.Name}
		c.done[t] = to
		to.Type = c.cut(t.Type)
		return to
	case *btf.Func:
		return &btf.Func{Name: t.Name, Type: c.cut(t.Type), Linkage: t.Linkage}
	case *btf.FuncProto:
		to := &btf.FuncProto{Return: c.cut(t.Return)}
		for _, p := range t.Params {
			to.Params = append(to.Params, btf.FuncParam{Name: p.Name, Type: c.cut(p.Type)})
		}
		return to
	case *btf.Const:
		return c.cut(t.Type)
	case *btf.Volatile:
		return c.cut(t.Type)
	case *btf.Restrict:
		return c.cut(t.Type)
	case *btf.TypeTag:
		return c.cut(t.Type)
	}
	return t // of a fixed size, with no further types
}

func (c *cutter) members(of []btf.Member) []btf.Member {
	var to []btf.Member
	for _, m := range of {
		to = append(to, btf.Member{Name: m.Name, Type: c.cut(m.Type), Offset: m.Offset, BitfieldSize: m.BitfieldSize})
	}
	return to
}

// target returns what a pointer points to.
func (c *cutter) target(t btf.Type) btf.Type {
	bare := btf.UnderlyingType(t)
	name := bare.TypeName()
	kind := btf.FwdStruct
	switch bare.(type) {
	case *btf.Struct, *btf.Fwd:
	case *btf.Union:
		kind = btf.FwdUnion
	case *btf.Int:
		return bare
	default:
		return (*btf.Void)(nil)
	}
	if _, forward := bare.(*btf.Fwd); !forward && c.wanted.Types[name] {
		return c.cut(bare)
	}
	if name == "" {
		return (*btf.Void)(nil)
	}
	if c.forward[name] == nil {
		c.forward[name] = &btf.Fwd{Name: name, Kind: kind}
	}
	return c.forward[name]
}
