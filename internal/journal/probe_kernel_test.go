package journal

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/daybook-project/daybook/internal/needs"
)

// Both compilations of the programs load and attach on this kernel, also the
// one that kernels before 5.11 get.
func TestBothCompilationsLoadIntoThisKernel(t *testing.T) {
	needs.Root(t)
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	needs.That(t, err == nil, "a kernel with BTF")
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){
		"typed": loadAttribution, "untyped": loadAttributionUntyped,
	} {
		probe, err := open(load)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := probe.Collect(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := probe.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
