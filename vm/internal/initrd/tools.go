package initrd

import (
	"debug/elf"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/daybook-project/daybook/vm/internal/wire"
)

// A guest of another architecture cannot run the host's programs. Its programs and their
// libraries are the tools: unpacked packages of Debian for that architecture.

// toolDirs are searched for a program by its name: busybox's own programs come last.
var toolDirs = []string{"/usr/bin", "/usr/sbin", wire.AppletDir}

// putTools copies programs and libraries of the tools, without their documentation.
func putTools(t tree, dir string) error {
	for _, name := range []string{"bin", "sbin", "lib"} {
		for _, from := range []string{filepath.Join(dir, name), filepath.Join(dir, "usr", name)} {
			err := putDirectory(t, from, path.Join("/usr", name))
			if err != nil && !isMissing(err) {
				return err
			}
		}
	}
	return nil
}

// putForeign adds a file to the root of a guest of another architecture. A program that is
// given by its name is one of the tools, and is there already; one that is given by a path
// must be for this architecture, and its libraries are not copied.
func (g Given) putForeign(t tree, arch string) error {
	if !strings.Contains(g.Host, "/") {
		if _, err := os.Lstat(g.Host); isMissing(err) {
			return g.findTool(t, arch)
		}
	}
	if checkRegular(g.Host) != nil {
		return g.put(t) // a directory, or what cannot be copied
	}
	if file, err := elf.Open(g.Host); err == nil {
		machine := file.Machine
		file.Close()
		if machine != machines[arch] {
			return fmt.Errorf("cannot copy %s to the guest: it is a program for %s, and the guest is %s", g.Host, machine, arch)
		}
	}
	return g.put(t)
}

func (g Given) findTool(t tree, arch string) error {
	for _, dir := range toolDirs {
		at, err := t.resolve(path.Join(dir, g.Host))
		if err != nil {
			return err
		}
		if _, there := t[at]; !there {
			continue
		}
		if g.Guest == "" || g.Guest == path.Join(dir, g.Host) {
			return nil
		}
		return t.putLink(g.Guest, at)
	}
	return fmt.Errorf("cannot copy %s to the guest: the guest is %s, and its tools have no such program", g.Host, arch)
}
