package initrd

import (
	"debug/elf"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// libraries lists what a program or library of the host needs at run time: the
// paths of its dynamic loader and its shared libraries, as the loader finds
// them. Nothing for a static program, and for what is no ELF file. Libraries
// that a program opens by itself (dlopen) are not known.
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
	needed, err := file.ImportedLibraries()
	if err != nil || len(needed) == 0 {
		return nil, nil // static
	}
	loader := interpreter(file)
	if loader == "" {
		return nil, nil // a library by itself, or a static-pie program
	}
	// --list is what ldd asks of the loader; the program does not run.
	text, err := exec.Command(loader, "--list", program).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("cannot list the libraries of %s: %s --list: %w: %s", program, loader, err, strings.TrimSpace(string(text)))
	}
	found, missing := parseList(string(text))
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s needs libraries that this host has not: %s", program, strings.Join(missing, ", "))
	}
	return append(found, loader), nil
}

// interpreter is the path of the dynamic loader that a program asks for.
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
