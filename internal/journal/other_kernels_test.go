package journal

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/daybook-project/daybook/internal/kerneltypes"
)

// Tracepoints that a kernel does not have, and the programs do without.
var lacking = map[string][]string{
	"5.10+builtin": {"iomap_dio_rw_begin"},
	"6.1":          {"ext4_journal_start_inode", "ext4_journal_start_sb", "iomap_dio_rw_begin", "wait_on_page_writeback"},
	"6.12":         {"ext4_journal_start", "wait_on_page_writeback"},
	"6.16":         {"ext4_journal_start", "wait_on_page_writeback"},
	"7.2":          {"ext4_journal_start", "wait_on_page_writeback"},
	"7.3":          {"ext4_journal_start", "wait_on_page_writeback"},
}

// notFor has the objects that a kernel does not load: those with the typed task, since
// 5.11, for which there is another compilation, and those of blame, for 5.15 and newer.
var notFor = map[string][]string{
	"5.10+builtin": {"internal/journal/attribution_bpfel.o", "internal/blame/programs_bpfel.o"},
}

// allObjects returns all compiled BPF programs of the repository that a kernel loads.
func allObjects(t *testing.T, kernel string) map[string]*ebpf.CollectionSpec {
	t.Helper()
	objects, err := kerneltypes.Objects("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) < 6 {
		t.Fatalf("only %d objects were found", len(objects))
	}
	for _, file := range notFor[kernel] {
		if objects[file] == nil {
			t.Fatalf("there is no %s", file)
		}
		delete(objects, file)
	}
	return objects
}

// typesOf returns the stored types of a kernel.
func typesOf(t *testing.T, kernel string) *kerneltypes.Types {
	t.Helper()
	types, err := kerneltypes.Load(kernel)
	if err != nil {
		t.Fatal(err)
	}
	return types
}

// problemsOn returns what keeps the programs of an object from being loaded on a kernel,
// and the tracepoints that are missing there.
func problemsOn(t *testing.T, object *ebpf.CollectionSpec, types *kerneltypes.Types) (problems, missing []string) {
	t.Helper()
	// Only programs at tracepoints with types have variants.
	tracing := &ebpf.CollectionSpec{Programs: make(map[string]*ebpf.ProgramSpec)}
	for name, program := range object.Programs {
		if program.Type == ebpf.Tracing && program.AttachType == ebpf.AttachTraceRawTp {
			tracing.Programs[name] = program
		}
	}
	served, err := servedTracepoints(tracing, types)
	if err != nil {
		t.Fatal(err)
	}
	for tracepoint, ok := range served {
		if !ok {
			missing = append(missing, tracepoint)
		}
	}
	for name, program := range object.Programs {
		if program.AttachType == ebpf.AttachTraceRawTp && tracing.Programs[name] == nil {
			continue
		}
		found, err := kerneltypes.Check(program, types)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, problem := range found {
			problems = append(problems, name+": "+problem)
		}
	}
	return problems, missing
}

// No kernel is booted for this: the programs' relocations are resolved against stored
// types. What it cannot show: package kerneltypes.
func TestAllProgramsFindWhatTheyReadInTheTypesOfOtherKernels(t *testing.T) {
	for _, kernel := range kerneltypes.Names() {
		t.Run(kernel, func(t *testing.T) {
			objects, types := allObjects(t, kernel), typesOf(t, kernel)
			var missing []string
			for file, object := range objects {
				problems, lacks := problemsOn(t, object, types)
				for _, problem := range problems {
					t.Errorf("%s: %s", file, problem)
				}
				missing = append(missing, lacks...)
			}
			slices.Sort(missing)
			if missing = slices.Compact(missing); !slices.Equal(missing, lacking[kernel]) {
				t.Errorf("the tracepoints %q are missing; want %q", missing, lacking[kernel])
			}
		})
	}
	for kernel := range lacking {
		if !slices.Contains(kerneltypes.Names(), kernel) {
			t.Errorf("the types of %s are not stored", kernel)
		}
	}
}

// The programs have numbers of operations in them, whose type had another name before 6.0.
func TestOtherKernelsHaveTheOperationsOfTheProgramsByTheirNumbers(t *testing.T) {
	for _, kernel := range kerneltypes.Names() {
		types := typesOf(t, kernel)
		if err := CheckOperations(types); err != nil {
			t.Errorf("%s: %v", kernel, err)
		}
		var kinds *btf.Enum
		if types.TypeByName("req_op", &kinds) != nil && types.TypeByName("req_opf", &kinds) != nil {
			t.Fatalf("%s has no operations", kernel)
		}
		for i := range kinds.Values {
			if kinds.Values[i].Name == "REQ_OP_WRITE_ZEROES" {
				kinds.Values[i].Value++
			}
		}
		if err := CheckOperations(types); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "REQ_OP_WRITE_ZEROES with the number 9") {
			t.Errorf("%s with another number: %v", kernel, err)
		}
	}
}

// User space looks for functions by their names, and for a flag by its value.
func TestOtherKernelsHaveTheFunctionsThatEndWrites(t *testing.T) {
	for _, kernel := range kerneltypes.Names() {
		types := typesOf(t, kernel)
		known := slices.ContainsFunc(ends, func(functions []string) bool {
			return !slices.ContainsFunc(functions, func(f string) bool { return !types.HasFunction(f) })
		})
		if !known {
			t.Errorf("%s has none of the functions %q", kernel, ends)
		}
		text, err := kerneltypes.Text(kernel)
		if err != nil {
			t.Fatal(err)
		}
		if flag, known := enumValue(text, "BIO_CLONED"); !known || flag > 31 {
			t.Errorf("on %s BIO_CLONED is %d, %t", kernel, flag, known)
		}
	}
	for _, functions := range ends {
		for _, function := range functions {
			if !slices.Contains(kerneltypes.Functions, function) {
				t.Errorf("the stored types would not have %s: add it to kerneltypes.Functions", function)
			}
		}
	}
}

// What later kernels did is done to the types of each kernel. A test that finds nothing
// then would find nothing in a new kernel either.
func TestAChangedKernelIsFound(t *testing.T) {
	for _, kernel := range kerneltypes.Names() {
		for _, change := range []struct{ structure, field string }{
			{"page", "compound_head"}, {"page", "compound_info"}, // 7.2 has the second
			{"bio", "bi_end_io"}, {"inode", "i_ino"}, {"transaction_s", "t_tid"}, {"request", "biotail"}, {"task_struct", "journal_info"},
		} {
			types := typesOf(t, kernel)
			if !rename(t, types, change.structure, change.field) {
				if change.structure != "page" {
					t.Errorf("%s has no %s in %s", kernel, change.field, change.structure)
				}
				continue
			}
			if found := problemsOfAll(t, kernel, types); !strings.Contains(strings.Join(found, "\n"), "does not have") {
				t.Errorf("%s without %s in %s: %q", kernel, change.field, change.structure, found)
			}
		}
		types := typesOf(t, kernel)
		has := rename(t, types, "buffer_head", "b_end_io") // kernels before 7.2
		if has != (kernel < "7") || len(problemsOfAll(t, kernel, types)) > 0 {
			t.Errorf("%s without b_end_io is not handled: %q", kernel, problemsOfAll(t, kernel, types))
		}
	}
}

// rename renames a field of all structures of a name, also where it is in a structure or
// union without a name inside. It reports whether there was one.
func rename(t *testing.T, types *kerneltypes.Types, structure, field string) (found bool) {
	t.Helper()
	named, err := types.AnyTypesByName(structure)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range named {
		found = renameIn(one, field) || found
	}
	return found
}

func renameIn(in btf.Type, field string) (found bool) {
	var members []btf.Member
	switch in := btf.UnderlyingType(in).(type) {
	case *btf.Struct:
		members = in.Members
	case *btf.Union:
		members = in.Members
	}
	for i := range members {
		if members[i].Name == field {
			members[i].Name = "renamed_" + field
			found = true
		} else if members[i].Name == "" {
			found = renameIn(members[i].Type, field) || found
		}
	}
	return found
}

func problemsOfAll(t *testing.T, kernel string, types *kerneltypes.Types) (all []string) {
	t.Helper()
	for file, object := range allObjects(t, kernel) {
		problems, _ := problemsOn(t, object, types)
		for _, problem := range problems {
			all = append(all, filepath.Base(file)+": "+problem)
		}
	}
	return all
}

// A tracepoint that gets other arguments is found, too.
func TestAChangedTracepointIsFound(t *testing.T) {
	for _, kernel := range kerneltypes.Names() {
		for want, change := range map[string]func(proto *btf.FuncProto){
			"of jbd2_start_commit points to":    func(proto *btf.FuncProto) { proto.Params[1], proto.Params[2] = proto.Params[2], proto.Params[1] },
			"jbd2_start_commit has 1 arguments": func(proto *btf.FuncProto) { proto.Params = proto.Params[:2] },
		} {
			types := typesOf(t, kernel)
			var typedef *btf.Typedef
			if err := types.TypeByName("btf_trace_jbd2_start_commit", &typedef); err != nil {
				t.Fatal(err)
			}
			change(typedef.Type.(*btf.Pointer).Target.(*btf.FuncProto))
			if found := strings.Join(problemsOfAll(t, kernel, types), "\n"); !strings.Contains(found, want) {
				t.Errorf("%s, %q: %s", kernel, want, found)
			}
		}
	}
}
