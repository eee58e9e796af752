package initrd

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/internal/wire"
)

// fakeProgram writes an executable ELF file that has a header only.
func fakeProgram(t *testing.T, path string, machine elf.Machine) {
	t.Helper()
	header := make([]byte, 64)
	copy(header, elf.ELFMAG)
	header[elf.EI_CLASS], header[elf.EI_DATA], header[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	binary.LittleEndian.PutUint16(header[16:], uint16(elf.ET_EXEC))
	binary.LittleEndian.PutUint16(header[18:], uint16(machine))
	binary.LittleEndian.PutUint32(header[20:], uint32(elf.EV_CURRENT))
	binary.LittleEndian.PutUint16(header[52:], 64)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, header, 0o755); err != nil {
		t.Fatal(err)
	}
}

// A guest of another architecture has the tools instead of the host's programs.
func TestAGuestOfAnotherArchitectureHasItsOwnPrograms(t *testing.T) {
	busybox := needs.Tool(t, "busybox")
	tools, host := t.TempDir(), t.TempDir()
	for _, name := range []string{"bin/busybox", "sbin/mke2fs", "lib/aarch64-linux-gnu/libe2p.so.2.3"} {
		fakeProgram(t, filepath.Join(tools, name), elf.EM_AARCH64)
	}
	if err := os.Symlink("libe2p.so.2.3", filepath.Join(tools, "lib/aarch64-linux-gnu/libe2p.so.2")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"usr/share/doc/e2fsprogs/copyright", "etc/mke2fs.conf"} {
		if err := os.MkdirAll(filepath.Join(tools, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tools, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fakeProgram(t, filepath.Join(host, "daybook"), elf.EM_AARCH64)
	fakeProgram(t, filepath.Join(host, "wrong"), elf.EM_X86_64)

	root := Root{Busybox: busybox, Arch: "arm64", Tools: tools, Give: []Given{
		{Host: "mke2fs"}, {Host: "mke2fs", Guest: "/opt/mkfs"}, {Host: "tar"}, {Host: filepath.Join(host, "daybook"), Guest: "/usr/bin/daybook"},
	}}
	guest := make(tree)
	if err := links(guest); err != nil {
		t.Fatal(err)
	}
	if err := root.putPrograms(guest); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"/usr/sbin/mke2fs": filepath.Join(tools, "sbin/mke2fs"), wire.Busybox: filepath.Join(tools, "bin/busybox"), "/usr/bin/daybook": filepath.Join(host, "daybook"),
		"/usr/lib/aarch64-linux-gnu/libe2p.so.2.3": filepath.Join(tools, "lib/aarch64-linux-gnu/libe2p.so.2.3"),
	} {
		if guest[name].host != want {
			t.Errorf("%s is %+v, want the file %s", name, guest[name], want)
		}
	}
	for name, want := range map[string]string{"/opt/mkfs": "/usr/sbin/mke2fs", "/usr/lib/aarch64-linux-gnu/libe2p.so.2": "libe2p.so.2.3", wire.AppletDir + "/tar": "../busybox"} {
		if guest[name].target != want {
			t.Errorf("%s is %+v, want a link to %s", name, guest[name], want)
		}
	}
	for name := range guest {
		if strings.Contains(name, "copyright") || strings.Contains(name, "mke2fs.conf") {
			t.Errorf("%s is in the guest", name)
		}
	}
	for _, wrong := range []struct{ host, want string }{{"no-such-program", "its tools have no such program"}, {filepath.Join(host, "wrong"), "is a program for EM_X86_64, and the guest is arm64"}} {
		root.Give = []Given{{Host: wrong.host, Guest: "/x"}}
		if err := root.putPrograms(guest); err == nil || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%v, want %q", err, wrong.want)
		}
	}
}
