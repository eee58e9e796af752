package journal

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// Both compilations of the programs load and attach on this kernel, including
// the one for kernels before 5.11.
func TestBothCompilationsLoadIntoThisKernel(t *testing.T) {
	needs.Root(t)
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	needs.That(t, err == nil, "a kernel with BTF")
	loadEach(t, compilations)
	// Open prefers the one that costs callers less.
	if typed, err := hasTypedTask(); err != nil || !typed {
		t.Errorf("the typed compilation loads, but Open does not choose it: %v, %v", typed, err)
	}
}

type compilation map[string]func() (*ebpf.CollectionSpec, error)

var compilations = compilation{"typed": loadAttribution, "untyped": loadAttributionUntyped}

// loadForThisKernel is the compilation that Open prefers here.
func loadForThisKernel(t *testing.T) func() (*ebpf.CollectionSpec, error) {
	t.Helper()
	typed, err := hasTypedTask()
	if err != nil {
		t.Fatal(err)
	}
	if typed {
		return loadAttribution
	}
	return loadAttributionUntyped
}

// loadEach loads and attaches, and logs which tracepoints the kernel lacks.
func loadEach(t *testing.T, compilations compilation) {
	t.Helper()
	for name, load := range compilations {
		begin := time.Now()
		probe, err := open(load)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		t.Logf("%s: %d programs in %v; missing tracepoints: %q", name, len(probe.programs.links), time.Since(begin), probe.Missing())
		checkVerifier(t, probe.programs.links)
		if _, err := probe.Collect(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, tracepoint := range probe.Missing() {
			if found, _ := filepath.Glob("/sys/kernel/tracing/events/*/" + tracepoint); len(found) > 0 {
				t.Errorf("%s: no program for %s, which the kernel has: %s", name, tracepoint, found)
			}
		}
		if err := probe.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// verifierBound is many times what a program needs now, and low enough that the
// daemon starts fast: the verifier's time grows faster than its instruction
// count, and 1,000,000 is the kernel's own limit.
const verifierBound = 20_000

// checkVerifier limits the work of the kernel's verifier for each program,
// which differs between kernels by orders of magnitude.
func checkVerifier(t *testing.T, links []link.Link) {
	t.Helper()
	for _, l := range links {
		info, err := l.Info()
		if err != nil {
			t.Fatal(err)
		}
		program, err := ebpf.NewProgramFromID(info.Program)
		if err != nil {
			t.Fatal(err)
		}
		about, err := program.Info()
		if err := errors.Join(err, program.Close()); err != nil {
			t.Fatal(err)
		}
		if count, known := about.VerifiedInstructions(); known && count > verifierBound {
			t.Errorf("%s: the verifier went through %d instructions, want at most %d", about.Name, count, verifierBound)
		}
	}
}

// GuestConfig is shared by this package's tests in guests, so that they share a
// boot: a disk, and one for a journal.
var GuestConfig = vmtest.Config{Disks: []string{"256M", "64M"}, Modules: "ext4", Give: []string{"mke2fs", "dd"}}

// Debian's ext4 and jbd2 are modules: their tracepoints and types are in a
// separate BTF, which is loaded and unloaded with them.
func TestGuestProgramsLoadWhereExt4IsAModule(t *testing.T) {
	vmtest.InGuest(t, GuestConfig, func(t *testing.T) {
		if _, err := os.Stat("/sys/module/ext4/initstate"); errors.Is(err, os.ErrNotExist) {
			t.Skip("this kernel has ext4 built in")
		}
		for _, module := range []string{"ext4", "jbd2"} {
			if _, err := os.Stat("/sys/kernel/btf/" + module); err != nil {
				t.Fatal(err)
			}
			if err := exec.Command("rmmod", module).Run(); err != nil {
				t.Fatalf("rmmod %s: %v", module, err)
			}
		}
		if _, err := Open(); !errors.Is(err, ErrNotLoaded) || !strings.Contains(err.Error(), "is jbd2 loaded") {
			t.Errorf("without jbd2: %v", err)
		}
		if err := CheckLoaded(); !errors.Is(err, ErrNotLoaded) {
			t.Errorf("without jbd2: %v", err)
		}
		if out, err := exec.Command("modprobe", "ext4").CombinedOutput(); err != nil {
			t.Fatalf("modprobe ext4: %v: %s", err, out)
		}
		if err := CheckLoaded(); err != nil {
			t.Error(err)
		}
		loadEach(t, compilation{"typed": loadAttribution})
	})
}

func TestGuestCompilationForOldKernelsLoadsWhereExt4IsAModule(t *testing.T) {
	vmtest.Long(t)
	vmtest.InGuest(t, GuestConfig, func(t *testing.T) { loadEach(t, compilation{"untyped": loadAttributionUntyped}) })
}

// Otherwise a disk that was not listed would stay observed.
func TestDisksThatCannotBeListedAreAnError(t *testing.T) {
	needs.Root(t)
	disks, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 1, MaxEntries: 1})
	needs.That(t, err == nil, "BPF maps")
	if err := disks.Close(); err != nil {
		t.Fatal(err)
	}
	probe := &Probe{}
	probe.objects.Disks = disks
	if err := probe.Observe(nil); err == nil || !strings.Contains(err.Error(), "cannot list the observed disks") {
		t.Errorf("the map of disks cannot be read: %v", err)
	}
}
