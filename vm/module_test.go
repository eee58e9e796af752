package vm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/kernels"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// moduleSource is a module that needs jbd2 and warns when it is unloaded.
const moduleSource = `// SPDX-License-Identifier: GPL-2.0
#include <linux/jbd2.h>
#include <linux/module.h>

static int __init hello_init(void)
{
	pr_warn("hello from a module of ours, beside jbd2 at %d\n", jbd2_journal_force_commit != NULL);
	return 0;
}

static void __exit hello_exit(void)
{
	WARN(1, "a warning on purpose");
}

module_init(hello_init);
module_exit(hello_exit);
MODULE_DESCRIPTION("Test of building against the fetched headers");
MODULE_LICENSE("GPL");
`

// The headers that are fetched build modules that the guest loads; and a
// warning that the kernel gives is found.
func TestModulesBuiltAgainstTheHeaders(t *testing.T) {
	vmtest.Long(t)
	makeTool := needs.Tool(t, "make")
	needs.Tool(t, "gcc")
	needs.Tool(t, "pahole") // 6.12 gives modules their BTF
	vmtest.EachKernel(t, func(t *testing.T, kernel string) {
		vmtest.Need(t, kernel)
		store, err := kernels.DefaultStore()
		if err != nil {
			t.Fatal(err)
		}
		store.Log = t.Logf
		tree, err := store.Get(t.Context(), kernel, kernels.Headers)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for name, text := range map[string]string{"hello.c": moduleSource, "Makefile": "obj-m := hello.o\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command(makeTool, "-C", tree.Headers, "M="+dir, "modules").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		m := vmtest.BootWithKernelProblems(t, vm.Config{Kernel: kernel, Modules: []string{filepath.Join(dir, "hello.ko")}})
		if !strings.Contains(m.Console(), "hello from a module of ours, beside jbd2 at 1") {
			t.Errorf("it was not loaded: %s", m.Console())
		}
		if problems := m.KernelProblems(); problems != nil {
			t.Errorf("before: %q", problems)
		}
		if _, err := m.Run(t.Context(), "rmmod", "hello"); err != nil {
			t.Fatal(err)
		}
		if problems := m.KernelProblems(); len(problems) != 1 || !strings.Contains(problems[0], "WARNING: ") {
			t.Errorf("a warning of the kernel was not found: %q\n%s", problems, m.Console())
		}
	})
}
