package journal

import (
	"os"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/daybook-project/daybook/internal/needs"
)

func TestAValueOfAnEnumerationWithoutANameIsThatOfTheLibrary(t *testing.T) {
	text, err := os.ReadFile(kernelTypes)
	needs.That(t, err == nil, kernelTypes)
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]int)
	values := make(map[string]uint64)
	for kind, err := range spec.All() {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := kind.(*btf.Enum); ok && e.Name == "" && e.Size == 4 {
			for _, v := range e.Values {
				names[v.Name]++
				values[v.Name] = v.Value
			}
		}
	}
	if names["BIO_CLONED"] != 1 {
		t.Fatalf("the kernel has %d flags BIO_CLONED", names["BIO_CLONED"])
	}
	compared := 0
	for name, n := range names {
		if n != 1 || compared == 100 && name != "BIO_CLONED" {
			continue
		}
		compared++
		if value, known := enumValue(text, name); !known || value != uint32(values[name]) {
			t.Errorf("%s is %d, %t; want %d", name, value, known, uint32(values[name]))
		}
	}
	if _, known := enumValue(text, "BIO_OF_NO_KERNEL"); known {
		t.Error("a value that no kernel has is known")
	}
}

// Whatever a kernel says of its types, it is read or not known.
func TestDamagedBTFHasNoValues(t *testing.T) {
	text, err := os.ReadFile(kernelTypes)
	needs.That(t, err == nil, kernelTypes)
	for size := range 64 {
		enumValue(text[:size], "BIO_CLONED")
	}
	for _, at := range []int{0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 48, 64} {
		damaged := append([]byte(nil), text...)
		for n := range 4 {
			damaged[at+n] = 0xff
		}
		enumValue(damaged, "BIO_CLONED")
	}
	if _, known := enumValue(text[:len(text)/2], "BIO_CLONED"); known {
		t.Error("half of the types have a value")
	}
}
