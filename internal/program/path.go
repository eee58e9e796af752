package program

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// systemDirectories have the tools of file systems and of LVM.
var systemDirectories = []string{"/usr/local/sbin", "/usr/sbin", "/sbin"}

// FindSystemPrograms makes this process, and what it starts, also find programs in the
// directories of system programs. Debian's users have none of them in PATH, nor has root after a
// plain su.
func FindSystemPrograms() {
	directories := filepath.SplitList(os.Getenv("PATH"))
	for _, directory := range systemDirectories {
		if !slices.Contains(directories, directory) {
			directories = append(directories, directory)
		}
	}
	_ = os.Setenv("PATH", strings.Join(directories, string(filepath.ListSeparator))) // fails for a zero byte only
}
