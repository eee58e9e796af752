package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/vm/kernels"
)

func TestAcceleratorIsRememberedUntilTheNextBoot(t *testing.T) {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		t.Skip("needs /dev/kvm, else there is nothing to find out")
	}
	boot, err := kernel.BootID()
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range []accelerator{kvm, tcg} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "accelerator-"+boot), []byte(known), 0o644); err != nil {
			t.Fatal(err)
		}
		// There is no such kernel, so a try would say tcg.
		if got, err := chooseAccelerator(t.Context(), dir, kernels.Tree{Vmlinux: "/none"}); err != nil || got != known {
			t.Errorf("%s, %v; want %s", got, err, known)
		}
	}
	if err := CheckHost(kernels.Names()[0]); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "accelerator-of-another-boot"), []byte(kvm), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := chooseAccelerator(t.Context(), dir, kernels.Tree{Vmlinux: "/none"}); err != nil || got != tcg {
		t.Errorf("a kernel that is not there boots under %s, %v", got, err)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(kept) != 1 || !strings.HasSuffix(kept[0], strings.TrimSpace(string(boot))) {
		t.Errorf("kept: %q, %v", kept, err)
	}
}

func TestAcceleratorByTheEnvironment(t *testing.T) {
	t.Setenv(AccelVariable, "kvm")
	if got, err := chooseAccelerator(t.Context(), t.TempDir(), kernels.Tree{Vmlinux: "/none"}); err != nil || got != kvm {
		t.Errorf("%s, %v", got, err)
	}
	t.Setenv(AccelVariable, "hvf")
	if _, err := chooseAccelerator(t.Context(), t.TempDir(), kernels.Tree{Vmlinux: "/none"}); err == nil {
		t.Error("no error")
	}
}
