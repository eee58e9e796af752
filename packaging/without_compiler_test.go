package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// standInGo is a Go command that builds stand-ins, whose packages are empty files.
const standInGo = `#!/bin/sh
made='#!/bin/sh
case $0 in
*/daybook) [ "$1" != man ] || { mkdir -p "$2" && echo >"$2/daybook.1"; }; exit ;;
esac
while [ $# -gt 0 ]; do
	case $1 in
	--config) config=$(basename "$2" .yaml) ;;
	--packager) packager=$2 ;;
	--target) target=$2 ;;
	-output) echo >"$2" ;;
	esac
	shift
done
[ -z "$target" ] || echo >"$target/$config.$packager"'
case "$1 $2" in
"env GOROOT") echo "${0%/*}" ;;
env*) echo amd64 ;;
esac
while [ $# -gt 0 ]; do
	[ "$1" != -o ] || to=$2
	shift
done
case $to in
"") ;;
*/) for tool in nfpm cyclonedx-gomod image; do echo "$made" >"$to$tool" && chmod +x "$to$tool"; done ;;
*) echo "$made" >"$to" && chmod +x "$to" ;;
esac
`

// As without root, and on distributions without apt.
func TestWithoutACompilerAllPackagesButNvjournalAreBuilt(t *testing.T) {
	tools := t.TempDir()
	missing := []string{"gcc", "cc", "pkg-config", "lintian"}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(dir) // the shell too passes over one that is not there
		for _, entry := range entries {
			if !slices.Contains(missing, entry.Name()) {
				_ = os.Symlink(filepath.Join(dir, entry.Name()), filepath.Join(tools, entry.Name())) // the first counts
			}
		}
	}
	stand := filepath.Join(t.TempDir(), "go")
	write(t, stand, standInGo)
	if err := os.Chmod(stand, 0o755); err != nil {
		t.Fatal(err)
	}
	attempt := func(require string, flags ...string) (string, string, error) {
		out := filepath.Join(t.TempDir(), "packages")
		cmd := exec.CommandContext(t.Context(), "./build", append([]string{"-o", out, "-a", "amd64"}, flags...)...)
		cmd.Env = append(os.Environ(), "PATH="+tools, "GO="+stand, "VERSION=v0.1.0+gtest", "PACKAGE_VERSION="+thisVersion, "SOURCE_DATE_EPOCH=1790000000", "DAYBOOK_REQUIRE_ALL="+require)
		said, err := cmd.CombinedOutput()
		return out, string(said), err
	}
	out, said, err := attempt("")
	if err != nil || !strings.Contains(said, "nvjournal is skipped") {
		t.Fatalf("%v, and it says: %s", err, said)
	}
	listed := sums(t, out)
	for _, file := range []string{"daybook.deb", "daybook.rpm", "ext4nvj-dkms.deb"} {
		if !strings.Contains(listed, " "+file+"\n") {
			t.Errorf("%s is not in SHA256SUMS: %s", file, listed)
		}
	}
	if strings.Contains(listed, "nvjournal.") {
		t.Errorf("there is a package of nvjournal: %s", listed)
	}
	if _, said, err := attempt("", "-f", "nvjournal"); err == nil {
		t.Errorf("what was asked for is skipped: %s", said)
	}
	if _, said, err := attempt("1"); err == nil {
		t.Errorf("with DAYBOOK_REQUIRE_ALL it is skipped: %s", said)
	}
}
