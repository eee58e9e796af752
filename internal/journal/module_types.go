package journal

import (
	"os"
	"path/filepath"
)

// sysDirectory is a variable for tests.
var sysDirectory = "/sys"

// ModuleWithoutTypes returns the name of a loaded module, jbd2 or ext4, whose types the
// kernel does not tell, so that its tracepoints cannot be used; "" if there is none.
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

// WhyNoTracepoint returns what may be the reason that a tracepoint of jbd2 or ext4 is
// missing, for messages.
func WhyNoTracepoint() string {
	if module := ModuleWithoutTypes(); module != "" {
		return "the module " + module + " is loaded, but has no BTF (/sys/kernel/btf/" + module + "): " +
			"BTF of modules needs Linux 5.11 or newer, built with CONFIG_DEBUG_INFO_BTF_MODULES=y"
	}
	return "is jbd2 loaded (is any ext4 mounted), and does it have BTF?"
}
