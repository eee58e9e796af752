package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// systemsVariable selects the systems: names with commas between.
const systemsVariable = "DAYBOOK_EXT4NVJ_SYSTEMS"

// moduleKernels are the kernels that the module is built for.
var moduleKernels = []string{"6.1", "6.12", "7.2", "7.3"}

// system is the driver of a volume and its options.
type system struct {
	name       string
	partitions int  // of the journal; 0: stock ext4, with its journal on the disk
	small      bool // small files' data is journaled, too
	handles    bool // log=handle: each handle logs what it changed
	jfs        bool // JFS, and not ext4
	fewLocks   bool // jfsnvj.ko has as few locks as it accepts; see loadJFS
}

var (
	stock = system{name: "ext4"}
	one   = system{name: "ext4nvj-1", partitions: 1, handles: true}
	eight = system{name: "ext4nvj-8", partitions: 8}
	small = system{name: "ext4nvj-small", partitions: 2, small: true}

	ours = []system{one, eight, small}
	all  = append([]system{stock}, ours...)

	stockJFS = system{name: "jfs", jfs: true}
	jfsOne   = system{name: "jfsnvj-1", partitions: 1, jfs: true}
	jfsEight = system{name: "jfsnvj-8", partitions: 8, jfs: true}
	jfsFew   = system{name: "jfsnvj-few", partitions: 1, jfs: true, fewLocks: true}

	oursJFS = []system{jfsOne, jfsEight}
	allJFS  = append([]system{stockJFS}, oursJFS...)
)

func systemNamed(name string) system {
	for _, s := range slices.Concat(all, allJFS, []system{jfsFew}) {
		if s.name == name {
			return s
		}
	}
	panic("no system " + name)
}

// ours reports whether it is ext4nvj or jfsnvj.
func (s system) ours() bool { return s.partitions > 0 }

// systems returns those of the wanted systems that are to be tested.
func systems(wanted ...system) []system {
	chosen := os.Getenv(systemsVariable)
	if chosen == "" {
		return wanted
	}
	names := strings.Split(chosen, ",")
	return slices.DeleteFunc(slices.Clone(wanted), func(s system) bool { return !slices.Contains(names, s.name) })
}

// onModuleKernels limits the kernels to those of the module, also those with checks
// for faults. Unless they were chosen, the first is enough for the quick forms.
func onModuleKernels(t *testing.T) {
	t.Helper()
	known := moduleKernels
	if os.Getenv("DAYBOOK_VM_KERNELS") == "" {
		known = known[:scaled(1, len(known))]
	}
	kernels := slices.DeleteFunc(slices.Clone(vmtest.Kernels(t)), func(kernel string) bool {
		of, _, _ := strings.Cut(kernel, "+")
		return !slices.Contains(known, of)
	})
	if len(kernels) == 0 {
		t.Skipf("ext4nvj is for the kernels %s, and these were not chosen", strings.Join(moduleKernels, ", "))
	}
	t.Setenv("DAYBOOK_VM_KERNELS", strings.Join(kernels, ","))
}

// parallel makes processors of guests run at the same time, in the long forms.
// vm.Config describes the cost.
var parallel = scaled(0, 1) == 1

// The disks and the persistent memory of each guest.
const (
	diskBytes = 256 << 20
	pmemBytes = 160 << 20
	// Of virtio-pmem, the last one.
	volatileBytes = 32 << 20
)

// loaded are the modules besides ours: stock ext4, and those that it and the tests
// need.
const loaded = "ext4,dm-flakey,dm-delay,quota_v2,loop,hwpoison_inject"

// tools are the host's programs that guests need.
var tools = []string{"mke2fs", "e2fsck", "dmsetup", "chattr"}

// built is a file on the host that make builds from this repository.
func built(t *testing.T, path, target string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(path)
	needs.That(t, err == nil, fmt.Sprintf("%s, which make %s builds", path, target))
	return path
}

// module is ext4nvj.ko for a kernel, on the host.
func module(t *testing.T, kernel string) string {
	return built(t, filepath.Join("..", "build", kernel, "ext4nvj.ko"), "kernel")
}

// jfsModule is jfsnvj.ko, or one with an error (jfs_mutants_test.go).
func jfsModule(t *testing.T, kernel string) string {
	if path := os.Getenv(moduleVariable); path != "" {
		return path
	}
	return built(t, filepath.Join("..", "build", kernel, "jfsnvj.ko"), "kernel")
}

// faultsModule makes functions of the guest's kernel fail (faults/faults.c).
func faultsModule(t *testing.T, kernel string) string {
	return built(t, filepath.Join("..", "build", kernel+"-faults", "faults.ko"), "kernel")
}

// inGuest runs a test in a guest of each kernel, which has the disks, the
// persistent memory, the modules and the tools.
func inGuest(t *testing.T, config vmtest.Config, test func(t *testing.T)) {
	t.Helper()
	onModuleKernels(t)
	for _, kernel := range vmtest.Kernels(t) {
		t.Setenv("DAYBOOK_VM_KERNELS", kernel)
		if !vmtest.Inside() {
			vmtest.Need(t, kernel)
			config.Disks = []string{size(diskBytes), size(diskBytes)}
			config.Pmem = []string{size(pmemBytes), size(pmemBytes), size(volatileBytes) + ",virtio"}
			config.Modules = loaded
			config.Parallel = parallel
			for _, tool := range tools {
				needs.Tool(t, tool)
				config.Give = append(config.Give, tool)
			}
			if slices.ContainsFunc(systems(all...), system.ours) {
				config.Modules += "," + module(t, kernel) + "," + faultsModule(t, kernel)
				config.Give = append(config.Give, built(t, "../../build/nvj", "nvjournal")+":/usr/bin/nvj")
			}
		}
		vmtest.InGuest(t, config, test)
	}
}

func size(bytes int) string { return fmt.Sprintf("%dM", bytes>>20) }
