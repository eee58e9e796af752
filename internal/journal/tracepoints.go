package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// required are the tracepoints without which attribution is impossible, unless
// ext4nvj or jfsnvj is loaded.
var required = []string{"jbd2_handle_stats", "jbd2_run_stats"}

// dropUnattachable removes the programs whose tracepoint this kernel does not
// have or has with other arguments, and returns the tracepoints without a
// program.
func dropUnattachable(spec *ebpf.CollectionSpec, cache *btf.Cache, required []string) ([]string, error) {
	if err := checkBTF(); err != nil {
		return nil, err
	}
	served, err := servedTracepoints(spec, cache)
	if err != nil {
		return nil, err
	}
	var missing []string
	for tracepoint, ok := range served {
		if !ok {
			missing = append(missing, tracepoint)
		}
	}
	slices.Sort(missing)
	lacking := slices.DeleteFunc(slices.Clone(missing), func(m string) bool { return !slices.Contains(required, m) })
	if len(lacking) == 0 {
		return missing, nil
	}
	if !HasNVJournal() {
		return nil, noTracepoint(lacking[0])
	}
	// Without the kernel's own ext4, all its tracepoints are missing, so they are not
	// listed.
	return lacking, nil
}

// kernelBTF has the types of the kernel and its modules: a btf.Cache, or, in tests, those of
// another kernel.
type kernelBTF interface {
	Kernel() (*btf.Spec, error)
	Module(name string) (*btf.Spec, error)
}

// servedTracepoints removes the programs that cannot be attached, and says of each
// tracepoint whether a program is left for it.
func servedTracepoints(spec *ebpf.CollectionSpec, cache kernelBTF) (map[string]bool, error) {
	served := make(map[string]bool)
	for name, program := range spec.Programs {
		tracepoint := program.AttachTo
		proto, err := tracepointArguments(cache, tracepoint)
		if err != nil {
			return nil, err
		}
		fits := proto != nil && argumentsFit(name, proto)
		served[tracepoint] = served[tracepoint] || fits
		if !fits {
			delete(spec.Programs, name)
		}
	}
	return served, nil
}

// Tracepoint is one that the programs attach to.
type Tracepoint struct {
	Name string
	// Required: without it nothing can be attributed. Without another the account
	// is coarser.
	Required bool
	// Present: the running kernel has it, with arguments that a program can read.
	Present bool
}

// Tracepoints lists those that the handles estimator attaches to, by name. It reads
// the kernel's BTF, loads nothing, and needs no root. The error wraps ErrUnsupported
// where there is no BTF.
func Tracepoints() ([]Tracepoint, error) {
	if err := checkBTF(); err != nil {
		return nil, err
	}
	spec, err := loadAttribution()
	if err != nil {
		return nil, fmt.Errorf("cannot read the compiled BPF programs: %w", err)
	}
	maps.DeleteFunc(spec.Programs, func(_ string, program *ebpf.ProgramSpec) bool { return ofNVJournal(program) })
	served, err := servedTracepoints(spec, btf.NewCache())
	if err != nil {
		return nil, err
	}
	var list []Tracepoint
	for _, name := range slices.Sorted(maps.Keys(served)) {
		list = append(list, Tracepoint{Name: name, Required: slices.Contains(required, name), Present: served[name]})
	}
	return list, nil
}

// checkBTF refuses a kernel that does not describe its types.
func checkBTF() error {
	if _, err := os.Stat(kernelTypes); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the kernel has no BTF (/sys/kernel/btf/vmlinux); "+
			"it must be built with CONFIG_DEBUG_INFO_BTF=y", ErrUnsupported)
	}
	return nil
}

// argumentsFit picks between the variants of one program; the first argument
// of the prototype is the kernel's own context.
func argumentsFit(program string, arguments []btf.FuncParam) bool {
	first := ""
	if len(arguments) > 1 {
		first = pointedTo(arguments[1].Type)
	}
	switch program {
	case "sync_file":
		return first == "file"
	case "sync_dentry":
		return first == "dentry"
	case "bio_queue", "bio_held", "bio_released":
		return first == "bio"
	case "bio_queue_of", "bio_held_of", "bio_released_of":
		return first == "request_queue"
	case "rq_complete":
		return first == "request"
	}
	return true
}

func pointedTo(t btf.Type) string {
	if pointer, ok := btf.UnderlyingType(t).(*btf.Pointer); ok {
		return btf.UnderlyingType(pointer.Target).TypeName()
	}
	return ""
}

// tracepointArguments returns nil if no tracepoint has that name, in the kernel
// or in one of its modules.
func tracepointArguments(cache kernelBTF, tracepoint string) ([]btf.FuncParam, error) {
	specs := []func() (*btf.Spec, error){cache.Kernel}
	module, _, _ := strings.Cut(tracepoint, "_")
	if _, err := os.Stat("/sys/kernel/btf/" + module); err == nil {
		specs = append(specs, func() (*btf.Spec, error) { return cache.Module(module) })
	}
	for _, load := range specs {
		spec, err := load()
		if err != nil {
			return nil, fmt.Errorf("%w: cannot read the kernel's BTF: %v", ErrUnsupported, err)
		}
		var typedef *btf.Typedef
		err = spec.TypeByName("btf_trace_"+tracepoint, &typedef)
		if errors.Is(err, btf.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot look up the tracepoint %s: %w", tracepoint, err)
		}
		pointer, ok := typedef.Type.(*btf.Pointer)
		if !ok {
			return nil, fmt.Errorf("the tracepoint %s has the type %s, which is not a pointer to a function", tracepoint, typedef.Type)
		}
		proto, ok := pointer.Target.(*btf.FuncProto)
		if !ok {
			return nil, fmt.Errorf("the tracepoint %s points to %s, which is not a function", tracepoint, pointer.Target)
		}
		return proto.Params, nil
	}
	return nil, nil
}
