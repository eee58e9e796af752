package vm_test

import (
	"testing"
	"time"

	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// QEMU lets a tenth of a second's worth through at once; beyond that a limited
// disk cannot be faster than its limit, however fast the host is.
func TestDiskLimits(t *testing.T) {
	m := vmtest.Boot(t, vm.Config{Kernel: vmtest.Kernels(t)[0], Disks: []vm.Disk{
		{SizeBytes: 64 << 20, BytesPerSecond: 4 << 20},
		{SizeBytes: 64 << 20, IOPS: 50},
	}})
	for what, command := range map[string][]string{
		"8 MiB at 4 MiB/s":                 {"dd", "if=/dev/zero", "of=/dev/daybook/disk0", "bs=256k", "count=32", "oflag=direct"},
		"100 operations at 50 in a second": {"dd", "if=/dev/zero", "of=/dev/daybook/disk1", "bs=4k", "count=100", "oflag=direct"},
	} {
		start := time.Now()
		if _, err := m.Run(t.Context(), command...); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 1500*time.Millisecond {
			t.Errorf("%s took %s", what, took)
		}
	}
}
