package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/cilium/ebpf/btf"
)

// sysDirectory is a variable for tests.
var sysDirectory = "/sys"

// ModuleWithoutTypes returns the name of a loaded module, jbd2 or ext4, whose types the
// kernel does not describe, so that its tracepoints cannot be used; "" if there is none.
// Linux has BTF of modules since 5.11 (CONFIG_DEBUG_INFO_BTF_MODULES).
func ModuleWithoutTypes() string {
	for _, name := range []string{"jbd2", "ext4"} {
		// Only a module that was loaded has a state; one that is built in has its types
		// in the kernel's.
		if _, err := os.Stat(filepath.Join(sysDirectory, "module", name, "initstate")); err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(sysDirectory, "kernel/btf", name)); err != nil {
			return name
		}
	}
	return ""
}

// noTracepoint is the error of a missing tracepoint of jbd2, with what may be the reason.
func noTracepoint(name string) error {
	if module := ModuleWithoutTypes(); module != "" {
		return fmt.Errorf("%w: the kernel has no tracepoint %s; the module %s is loaded, but has no BTF (/sys/kernel/btf/%s): "+
			"BTF of modules needs Linux 5.11 or newer, built with CONFIG_DEBUG_INFO_BTF_MODULES=y", ErrUnsupported, name, module, module)
	}
	unsupported := ErrNotLoaded
	if slices.Contains(LoadedModules(), "jbd2") {
		unsupported = ErrUnsupported
	}
	return fmt.Errorf("%w: the kernel has no tracepoint %s; is jbd2 loaded (is any ext4 mounted), and does it have BTF?", unsupported, name)
}

// LoadedModules lists those of the modules jbd2, ext4, ext4nvj and jfsnvj that are loaded. Probes that
// could not be opened before can be opened after one was loaded.
func LoadedModules() []string {
	return slices.DeleteFunc([]string{"jbd2", "ext4", string(Ext4NVJ), string(JFSNVJ)}, func(name string) bool {
		_, err := os.Stat(filepath.Join(sysDirectory, "module", name))
		return err != nil
	})
}

// CheckLoaded returns an error that wraps ErrNotLoaded where the kernel has no tracepoints of jbd2,
// because that module is not loaded, and has no module with a journal in memory. It loads nothing.
// Other reasons why probes cannot be opened are errors of those.
func CheckLoaded() error {
	if slices.Contains(LoadedModules(), "jbd2") || HasNVJournal() {
		return nil
	}
	defer debug.FreeOSMemory() // of the kernel's type information
	arguments, err := tracepointArguments(btf.NewCache(), required[0])
	if err != nil || arguments != nil { // jbd2 is built in
		return nil
	}
	if err := noTracepoint(required[0]); errors.Is(err, ErrNotLoaded) {
		return err
	}
	return nil
}
