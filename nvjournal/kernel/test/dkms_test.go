package test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
		name, version, _ := strings.Cut(filepath.Base(the(t, filepath.Join(root, "usr/src/ext4nvj-*"))), "-")

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

// dpkg runs dkms autoinstall when it has unpacked a kernel's headers. If that fails, so does their
// installation.
func TestDKMSBuildsNothingForAKernelWhoseSourceIsNotThere(t *testing.T) {
	needs.Root(t)
	dkmsTool := needs.Tool(t, "dkms")
	unshare := needs.Tool(t, "unshare")
	root := t.TempDir()
	must(t, needs.Tool(t, "make"), "-C", "..", "dkms", "DESTDIR="+root)
	conf, err := os.ReadFile(the(t, filepath.Join(root, "usr/src/ext4nvj-*/dkms.conf")))
	if err != nil {
		t.Fatal(err)
	}
	// The build only says that it ran.
	stub := regexp.MustCompile(`(?m)^MAKE\[0\]=.*$`).ReplaceAll(conf, []byte(`MAKE[0]="touch `+root+`/ran; false"`))
	if err := os.WriteFile(the(t, filepath.Join(root, "usr/src/ext4nvj-*/dkms.conf")), stub, 0o644); err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(filepath.Base(the(t, filepath.Join(root, "usr/src/ext4nvj-*"))), "-")
	const newest, other = "6.12.43-amd64", "6.16.3-amd64"
	for _, release := range []string{"6.1.0-50-amd64", newest, other} {
		// Where headers are looked for, and where modules are installed.
		for _, dir := range []string{release + "/build/include/config", release + "/updates/dkms"} {
			if err := os.MkdirAll(filepath.Join(root, "lib/modules", dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(root, "lib/modules", release, "build/include/config/kernel.release"), []byte(release+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// /usr/src has no other source than that given, as SERIES.
	dkms := func(series string, what ...string) (string, error) {
		const script = `mount -t tmpfs none /usr/src && { [ -z "$1" ] || touch "/usr/src/linux-source-$1.tar.xz"; } && shift && exec "$@"`
		command := append([]string{"--mount", "sh", "-c", script, "sh", series, dkmsTool}, what...)
		cmd := exec.Command(unshare, append(command, "--dkmstree", filepath.Join(root, "dkms"), "--sourcetree", filepath.Join(root, "usr/src"), "--installtree", filepath.Join(root, "lib/modules"))...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if err := os.Mkdir(filepath.Join(root, "dkms"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := dkms("6.1", "add", "-m", "ext4nvj", "-v", version); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ran := func() bool {
		err := os.Remove(filepath.Join(root, "ran"))
		return err == nil
	}
	headers := func(release string) string { return filepath.Join(root, "lib/modules", release, "build") }
	check := func(state string) {
		for release, says := range map[string]string{newest: "linux-source-6.12", other: "6.1 and 6.12"} {
			out, err := dkms("6.1", "autoinstall", "-k", release, "--kernelsourcedir", headers(release))
			if err != nil || !strings.Contains(out, says) || !strings.Contains(out, release) || ran() {
				t.Errorf("%s, autoinstall for %s: %v, and it says, without %q: %s", state, release, err, says, out)
			}
		}
		// 77 is what the package's postinst skips a kernel for.
		out, err := dkms("6.1", "build", "-m", "ext4nvj", "-v", version, "-k", newest, "--kernelsourcedir", headers(newest))
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 77 || !strings.Contains(out, "linux-source-6.12") || ran() {
			t.Errorf("%s, build for %s: %v, want the exit status 77: %s", state, newest, err, out)
		}
		if out, _ := dkms("6.12", "autoinstall", "-k", newest, "--kernelsourcedir", headers(newest)); !ran() {
			t.Errorf("%s: autoinstall does not build for a kernel whose source is there: %s", state, out)
		}
	}
	check("built for no kernel")
	// As dkms leaves the modules of a kernel whose source was there.
	built := filepath.Join(root, "dkms/ext4nvj", version, "6.1.0-50-amd64/x86_64/module")
	if err := os.MkdirAll(built, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"ext4nvj.ko", "jfsnvj.ko"} {
		if err := os.WriteFile(filepath.Join(built, module), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check("built for 6.1")
	if out, err := dkms("", "status"); err != nil || !strings.Contains(out, "built") || strings.Contains(out, "linux-source") {
		t.Errorf("status: %v: %s", err, out)
	}
}

// the is the one file that matches.
func the(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v; want one", pattern, found, err)
	}
	return found[0]
}
