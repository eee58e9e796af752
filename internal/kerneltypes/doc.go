// Package kerneltypes checks compiled BPF programs against types of kernels that are not
// running: [Check] resolves what a program reads of the kernel's structures, as the loader
// does, and reports what the kernel does not have. It is for tests and for the command cut.
//
// The files NAME.btf have the types of the kernels that vm/kernels pins, of jbd2 and of
// ext4, as BTF (Documentation/bpf/btf.rst): those structures, tracepoints and functions
// that our programs name. [Cut] leaves out the others, so that a file has some 40 KB in
// place of 6 MB. They are cut from Debian's packages linux-image, which are under the GNU
// General Public License, version 2. To renew one, or after a program names another type:
//
//	make build-vm
//	go run ./internal/kerneltypes/cut 5.10+builtin 6.1 6.12 6.16 7.2 7.3
//
// What a check cannot show: whether the verifier accepts a program, whether a function
// that is no tracepoint still is called, and what a field means. Guests show it.
package kerneltypes

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cilium/ebpf/btf"
)

//go:embed *.btf
var stored embed.FS

// Names returns the names of the kernels whose types are stored.
func Names() []string {
	files, err := fs.Glob(stored, "*.btf")
	if err != nil {
		panic(err) // the pattern is valid
	}
	for i := range files {
		files[i] = strings.TrimSuffix(files[i], ".btf")
	}
	return files
}

// Text returns the stored types of a kernel.
func Text(name string) ([]byte, error) {
	text, err := stored.ReadFile(name + ".btf")
	if err != nil {
		return nil, fmt.Errorf("there are no types of the kernel %s: go run ./internal/kerneltypes/cut %s", name, name)
	}
	return text, nil
}

// Load reads the stored types of a kernel.
func Load(name string) (*Types, error) {
	text, err := Text(name)
	if err != nil {
		return nil, err
	}
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("the types of the kernel %s: %w", name, err)
	}
	return &Types{spec}, nil
}

// Types are those of one kernel and of its modules, merged.
type Types struct{ *btf.Spec }

// Kernel returns the types. With Module it makes Types a source of types as btf.Cache is.
func (t *Types) Kernel() (*btf.Spec, error) { return t.Spec, nil }

// Module returns the types, too: they are merged.
func (t *Types) Module(string) (*btf.Spec, error) { return t.Spec, nil }
