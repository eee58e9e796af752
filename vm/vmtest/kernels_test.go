package vmtest_test

import (
	"slices"
	"testing"

	"github.com/daybook-project/daybook/vm/vmtest"
)

// Many tests with one kernel each cover all kernels, and a long run covers all
// kernels with each test.
func TestOneKernelIsStableAndCoversAll(t *testing.T) {
	t.Setenv("DAYBOOK_VM_LONG", "")
	all := vmtest.Kernels(t)
	seen := map[string]bool{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} {
		t.Run(name, func(t *testing.T) {
			one := vmtest.OneKernel(t)
			if len(one) != 1 || !slices.Equal(one, vmtest.OneKernel(t)) {
				t.Fatalf("%q, then %q", one, vmtest.OneKernel(t))
			}
			seen[one[0]] = true
		})
	}
	if len(seen) != len(all) {
		t.Errorf("kernels %v of %v", seen, all)
	}
	t.Setenv("DAYBOOK_VM_LONG", "1")
	if got := vmtest.OneKernel(t); !slices.Equal(got, all) {
		t.Errorf("%q in a long run, want %q", got, all)
	}
}
