package containertest

import (
	"archive/tar"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"

	"github.com/daybook-project/daybook/internal/needs"
)

// busybox returns the path of a static busybox, the only program in these
// containers.
func (w *Workshop) busybox() string {
	w.t.Helper()
	file := needs.Tool(w.t, "busybox")
	binary, err := elf.Open(file)
	if err != nil {
		w.t.Fatal(err)
	}
	defer binary.Close()
	static := !slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	needs.That(w.t, static, "a static busybox (package busybox-static)")
	return file
}

// Rootfs makes a directory with a busybox and the mount points of runtimes.
func (w *Workshop) Rootfs() string {
	w.t.Helper()
	dir := w.Path("rootfs")
	for _, sub := range []string{"bin", "dev", "proc", "sys", "tmp", "etc", "run"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	content, err := os.ReadFile(w.busybox())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "bin/busybox"), content, 0o755)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return dir
}

// Image makes a tar of the same files for docker import.
func (w *Workshop) Image() string {
	w.t.Helper()
	content, err := os.ReadFile(w.busybox())
	if err != nil {
		w.t.Fatal(err)
	}
	f, err := os.Create(w.Path("busybox.tar"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	archive := tar.NewWriter(f)
	err = archive.WriteHeader(&tar.Header{Name: "bin/busybox", Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = archive.Write(content)
	}
	if err == nil {
		err = archive.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return f.Name()
}
