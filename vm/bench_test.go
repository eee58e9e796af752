package vm_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/kernels"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// BenchmarkBoot is the time from Boot to the end of a first command, with
// nothing and with 200 MiB of files given. docs/architecture.md has its figures:
//
//	go test -run '^$' -bench . -benchtime 5x ./vm
func BenchmarkBoot(b *testing.B) {
	file := bigFile(b)
	for _, kernel := range kernels.Names() {
		for name, give := range map[string][]vm.Give{"bare": nil, "given-200MiB": {{Host: file, Guest: "/big"}}} {
			b.Run("kernel-"+kernel+"/"+name, func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					start := time.Now()
					m := boot(b, kernel, give)
					took = append(took, time.Since(start))
					m.Close()
				}
				report(b, took)
			})
		}
	}
}

// BenchmarkFetch is the time to bring 200 MiB back from the guest.
func BenchmarkFetch(b *testing.B) {
	file := bigFile(b)
	for _, kernel := range kernels.Names() {
		b.Run("kernel-"+kernel+"/200MiB", func(b *testing.B) {
			m := boot(b, kernel, []vm.Give{{Host: file, Guest: "/big"}})
			defer m.Close()
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				if err := m.Fetch(b.Context(), "/big", file+".back"); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			report(b, took)
		})
	}
}

func boot(b *testing.B, kernel string, give []vm.Give) *vm.Machine {
	b.Helper()
	m := vmtest.Boot(b, vm.Config{
		Kernel: kernel, Give: give, Modules: []string{"ext4", "bfq"},
		Disks: []vm.Disk{{SizeBytes: 1 << 30}}, Pmem: []vm.Pmem{{SizeBytes: 256 << 20}},
	})
	if _, err := m.Run(b.Context(), "true"); err != nil {
		b.Fatal(err)
	}
	return m
}

func bigFile(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "big")
	content := make([]byte, 200<<20)
	for i := range content {
		content[i] = byte(i >> 4)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		b.Fatal(err)
	}
	return path
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds(), "median_seconds")
}
