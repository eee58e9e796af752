package initrd

import (
	"debug/elf"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// libraries lists the run-time dependencies of a program or library of the host:
// the paths of its dynamic loader and its shared libraries, as the loader finds
// them. The list is empty for a static program, and for a file that is not ELF.
// It lacks libraries that a program opens itself (dlopen), and is empty for a program of
// another architecture than this one's, whose loader cannot run here.
func libraries(program string) ([]string, error) {
	file, err := elf.Open(program)
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) || strings.Contains(err.Error(), "EOF") {
			return nil, nil
		}
		return nil, err
	}
	defer file.Close()
	if file.Machine != machines[runtime.GOARCH] {
		return nil, nil
	}
	needed, err := file.ImportedLibraries()
	if err != nil || len(needed) == 0 {
		return nil, nil // static
	}
	loader := interpreter(file)
	if loader == "" {
		return nil, nil // a shared library, or a static-pie program
	}
	// ldd calls the loader with --list; the program does not run.
	text, err := exec.Command(loader, "--list", program).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("cannot list the libraries of %s: %s --list: %w: %s", program, loader, err, strings.TrimSpace(string(text)))
	}
	found, missing := parseList(string(text))
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s needs libraries that this host lacks: %s", program, strings.Join(missing, ", "))
	}
	return append(found, loader), nil
}

// machines are the values of ELF's e_machine, by the names of architectures.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// interpreter returns the path of a program's dynamic loader.
func interpreter(file *elf.File) string {
	for _, segment := range file.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		b := make([]byte, segment.Filesz)
		if _, err := segment.ReadAt(b, 0); err != nil {
			return ""
		}
		return strings.TrimRight(string(b), "\x00")
	}
	return ""
}

// parseList reads lines such as
//
//	libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f…)
//	/lib64/ld-linux-x86-64.so.2 (0x00007f…)
//	libgone.so => not found
func parseList(text string) (found, missing []string) {
	for line := range strings.Lines(text) {
		name, place, arrow := strings.Cut(strings.TrimSpace(line), " => ")
		if !arrow {
			place = name
		}
		if place == "not found" {
			missing = append(missing, name)
			continue
		}
		place, _, _ = strings.Cut(place, " (")
		if filepath.IsAbs(place) {
			found = append(found, place)
		}
	}
	return found, missing
}
