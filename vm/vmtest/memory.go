package vmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// WithPages makes a namespace of the guest's memory one of mode fsdax, as ndctl does, so that the memory
// has struct page. The content of the namespace is lost.
func WithPages(t *testing.T, pmem string) {
	t.Helper()
	const bus = "/sys/bus/nd/"
	device, err := filepath.EvalSymlinks(filepath.Join("/sys/block", filepath.Base(pmem), "device"))
	if err != nil {
		t.Fatal(err)
	}
	name, isNamespace := strings.CutPrefix(filepath.Base(device), "namespace")
	if !isNamespace {
		return // it is one already
	}
	region, _, _ := strings.Cut(name, ".")
	seeds, err := os.ReadFile(filepath.Join(bus, "devices", "region"+region, "pfn_seed"))
	if err != nil {
		t.Fatal(err)
	}
	seed := strings.TrimSpace(string(seeds))
	pfn := filepath.Join(bus, "devices", seed)
	for _, w := range []struct{ path, value string }{
		{bus + "drivers/nd_pmem/unbind", filepath.Base(device)},
		{filepath.Join(pfn, "uuid"), "1e2f3a4b-5c6d-4e7f-8a9b-0c1d2e3f4a5b"},
		{filepath.Join(pfn, "align"), fmt.Sprint(2 << 20)},
		{filepath.Join(pfn, "mode"), "ram"},
		{filepath.Join(pfn, "namespace"), filepath.Base(device)},
		{bus + "drivers/nd_pmem/bind", seed},
	} {
		if err := os.WriteFile(w.path, []byte(w.value), 0); err != nil {
			t.Fatal(err)
		}
	}
}
