package journal

import (
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// requestOperations are what requests do, by the numbers that the BPF programs have for them
// (bpf/kernel.h). They have been the same since Linux 4.10 (include/linux/blk_types.h).
var requestOperations = map[string]uint64{"REQ_OP_READ": 0, "REQ_OP_WRITE": 1, "REQ_OP_FLUSH": 2, "REQ_OP_WRITE_ZEROES": 9}

// CheckOperations returns an error that wraps ErrUnsupported if operations of requests
// have other numbers in this kernel than in the BPF programs. The kernel's type is looked
// up here, and not by each program for itself: it is called req_op since 6.0 and req_opf
// before, and a choice between two names costs a program that runs for each request 12
// instructions.
func CheckOperations(types kernelBTF) error {
	kernel, err := types.Kernel()
	if err != nil {
		return fmt.Errorf("%w: cannot read the kernel's types: %w", ErrUnsupported, err)
	}
	var kinds *btf.Enum
	if kernel.TypeByName("req_op", &kinds) != nil && kernel.TypeByName("req_opf", &kinds) != nil {
		return fmt.Errorf("%w: the kernel's types have no operations of requests (enum req_op)", ErrUnsupported)
	}
	known := make(map[string]uint64)
	for _, kind := range kinds.Values {
		known[kind.Name] = kind.Value
	}
	for name, want := range requestOperations {
		if number, ok := known[name]; !ok || number != want {
			return fmt.Errorf("%w: the kernel's requests have no operation %s with the number %d, so the BPF programs do not fit this kernel", ErrUnsupported, name, want)
		}
	}
	return nil
}
