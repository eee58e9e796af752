package test

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

// dkms builds both modules from the files that make dkms copies. The kernel loads them,
// and they can be removed again. All of that is in the test's own directories.
func TestDKMS(t *testing.T) {
	vmtest.Long(t)
	onModuleKernels(t)
	needs.Root(t)
	dkmsTool := needs.Tool(t, "dkms")
	makeTool := needs.Tool(t, "make")
	vmtest.EachKernel(t, func(t *testing.T, kernel string) {
		vmtest.Need(t, kernel)
		store, err := kernels.DefaultStore()
		if err != nil {
			t.Fatal(err)
		}
		store.Log = t.Logf
		tree, err := store.Get(t.Context(), kernel, kernels.Headers, kernels.Source)
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		must(t, makeTool, "-C", "..", "dkms", "DESTDIR="+root)
		copied, err := filepath.Glob(filepath.Join(root, "usr/src/ext4nvj-*"))
		if err != nil || len(copied) != 1 {
			t.Fatalf("make dkms made %q, %v", copied, err)
		}
		name, version, _ := strings.Cut(filepath.Base(copied[0]), "-")

		dkms := func(what string, more ...string) string {
			t.Helper()
			for _, directory := range []string{"dkms", "modules"} {
				if err := os.MkdirAll(filepath.Join(root, directory), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(dkmsTool, append([]string{what, "-m", name, "-v", version, "-k", tree.Release,
				"--dkmstree", filepath.Join(root, "dkms"), "--sourcetree", filepath.Join(root, "usr/src"), "--installtree", filepath.Join(root, "modules")}, more...)...)
			cmd.Env = append(os.Environ(), "SOURCE="+tree.Source)
			out, err := cmd.CombinedOutput()
			if err != nil {
				log, _ := os.ReadFile(filepath.Join(root, "dkms", name, version, "build/make.log"))
				t.Fatalf("dkms %s: %v:\n%s\n%s", what, err, out, log)
			}
			return string(out)
		}
		dkms("build", "--kernelsourcedir", tree.Headers)
		built := filepath.Join(root, "dkms", name, version, tree.Release, "x86_64/module")
		m := vmtest.Boot(t, vm.Config{Kernel: kernel, Modules: []string{filepath.Join(built, "ext4nvj.ko"), filepath.Join(built, "jfsnvj.ko")}})
		for _, filesystem := range []string{"ext4nvj", "jfsnvj"} {
			if _, err := m.Run(t.Context(), "grep", "-w", filesystem, "/proc/filesystems"); err != nil {
				t.Errorf("the module %s is loaded, and the file system is not there: %v", filesystem, err)
			}
		}
		faults(t, m)
		dkms("remove")
		if said := dkms("status"); strings.TrimSpace(said) != "" {
			t.Errorf("after its removal dkms has: %s", said)
		}
	})
}
