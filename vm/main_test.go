package vm_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/daybook-project/daybook/vm"
)

// bootVariable makes the test binary boot a guest and wait, to be killed.
const bootVariable = "DAYBOOK_VM_TEST_BOOT"

func TestMain(m *testing.M) {
	vm.InitIfAsked()
	if kernel := os.Getenv(bootVariable); kernel != "" {
		bootAndWait(kernel)
	}
	os.Exit(m.Run())
}

func bootAndWait(kernel string) {
	machine, err := vm.Boot(context.Background(), vm.Config{
		Kernel: kernel,
		Disks:  []vm.Disk{{SizeBytes: 64 << 20}},
		Pmem:   []vm.Pmem{{SizeBytes: 64 << 20}},
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	_, err = machine.Run(context.Background(), "dd", "if=/dev/zero", "of=/dev/daybook/disk0", "bs=1M", "count=16")
	fmt.Println("booted", err)
	select {}
}
