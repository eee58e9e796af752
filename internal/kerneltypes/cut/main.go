// Command cut writes the types of kernels that package kerneltypes stores. It runs in the
// root of the repository, and needs the kernels in the guests' cache:
//
//	go run ./internal/kerneltypes/cut KERNEL...
package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/daybook-project/daybook/internal/kerneltypes"
	"github.com/daybook-project/daybook/vm/kernels"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: cut KERNEL...")
		os.Exit(2)
	}
	for _, name := range os.Args[1:] {
		if err := cut(name); err != nil {
			fmt.Fprintf(os.Stderr, "cut: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

func cut(name string) error {
	store, err := kernels.DefaultStore()
	if err != nil {
		return err
	}
	tree, err := store.Get(context.Background(), name, kernels.Image)
	if err != nil {
		return err
	}
	kernel, err := typesOf(tree.Vmlinux, nil)
	if err != nil {
		return err
	}
	specs := []*btf.Spec{kernel}
	for _, module := range []string{"jbd2", "ext4"} {
		file := filepath.Join(tree.Modules, "kernel/fs", module, module+".ko")
		spec, err := typesOf(file, kernel)
		if errors.Is(err, fs.ErrNotExist) && builtIn(tree.Modules, module) {
			continue
		}
		if err != nil {
			return err
		}
		specs = append(specs, spec)
	}
	objects, err := kerneltypes.Objects(".")
	if err != nil {
		return err
	}
	text, err := kerneltypes.Cut(specs, kerneltypes.Want(objects))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("internal/kerneltypes", name+".btf"), text, 0o644)
}

// builtIn reports whether the kernel itself has a file system, and no module does.
func builtIn(modules, name string) bool {
	list, err := os.ReadFile(filepath.Join(modules, "modules.builtin"))
	return err == nil && strings.Contains(string(list), "/"+name+".ko\n")
}

// typesOf reads the section .BTF of a kernel or, with base, of a module. The library wants
// symbols, which a kernel for booting does not have.
func typesOf(path string, base *btf.Spec) (*btf.Spec, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	section := file.Section(".BTF")
	if section == nil {
		return nil, fmt.Errorf("%s has no BTF", path)
	}
	text, err := section.Data()
	if err != nil {
		return nil, err
	}
	if base != nil {
		return btf.LoadSplitSpecFromReader(bytes.NewReader(text), base)
	}
	return btf.LoadSpecFromReader(bytes.NewReader(text))
}
