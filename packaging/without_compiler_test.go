package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
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

// buildWith runs packaging/build with stand-ins of tools, by name; an empty one is a tool that this
// host lacks.
func buildWith(t *testing.T, standIns map[string]string, require string, flags ...string) (out, said string, err error) {
	t.Helper()
	tools := t.TempDir()
	for name, script := range standIns {
		if script != "" {
			writeTool(t, filepath.Join(tools, name), script)
		}
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(dir) // the shell too passes over one that is not there
		for _, entry := range entries {
			if _, given := standIns[entry.Name()]; !given && entry.Name() != "lintian" {
				_ = os.Symlink(filepath.Join(dir, entry.Name()), filepath.Join(tools, entry.Name())) // the first counts
			}
		}
	}
	stand := filepath.Join(t.TempDir(), "go")
	writeTool(t, stand, standInGo)
	out = filepath.Join(t.TempDir(), "packages")
	cmd := exec.CommandContext(t.Context(), "./build", append([]string{"-o", out, "-a", "amd64"}, flags...)...)
	cmd.Env = append(os.Environ(), "PATH="+tools, "GO="+stand, "CC=gcc", "PKG_CONFIG=pkg-config", "VERSION=v0.1.0+gtest", "PACKAGE_VERSION="+thisVersion, "SOURCE_DATE_EPOCH=1790000000", "DAYBOOK_REQUIRE_ALL="+require)
	text, err := cmd.CombinedOutput()
	return out, string(text), err
}

func writeTool(t *testing.T, path, script string) {
	t.Helper()
	write(t, path, script)
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// Tools with which all is there, and with which nothing can be built.
const (
	succeeds = "#!/bin/sh\n"
	fails    = "#!/bin/sh\nexit 1\n"
)

// As without root, and on distributions without apt.
func TestWithoutACompilerAllPackagesButNvjournalAreBuilt(t *testing.T) {
	without := map[string]string{"gcc": "", "cc": "", "pkg-config": ""}
	out, said, err := buildWith(t, without, "")
	if err != nil || !strings.Contains(said, "nvjournal is skipped: this host lacks gcc, pkg-config\n") {
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
	if _, said, err := buildWith(t, without, "", "-f", "nvjournal"); err == nil {
		t.Errorf("what was asked for is skipped: %s", said)
	}
	if _, said, err := buildWith(t, without, "1"); err == nil {
		t.Errorf("with DAYBOOK_REQUIRE_ALL it is skipped: %s", said)
	}
}

func TestWhatNvjournalLacksIsNamed(t *testing.T) {
	for want, standIns := range map[string]map[string]string{
		"strip":                              {"gcc": succeeds, "pkg-config": succeeds, "strip": ""},
		"liburing":                           {"gcc": succeeds, "pkg-config": fails, "strip": succeeds},
		"static libraries of C and liburing": {"gcc": fails, "pkg-config": succeeds, "strip": succeeds},
	} {
		if _, said, err := buildWith(t, standIns, ""); err != nil || !strings.Contains(said, "nvjournal is skipped: this host lacks "+want+"\n") {
			t.Errorf("%v, want %q: %s", err, want, said)
		}
	}
}

func TestAFailureToBuildNvjournalIsAnErrorWhereNothingIsMissing(t *testing.T) {
	for _, standIns := range []map[string]string{
		{"make": "#!/bin/sh\ncase $* in *'-C nvjournal '*) exit 2 ;; esac\n"}, // as at an error of the compiler
		{"make": "#!/bin/sh\nfor goal; do :; done\ncase $goal in */nvj) mkdir -p \"${goal%/*}\" && echo >\"$goal\" ;; esac\n", "strip": fails},
	} {
		standIns["gcc"], standIns["pkg-config"] = succeeds, succeeds
		if standIns["strip"] == "" {
			standIns["strip"] = succeeds
		}
		if _, said, err := buildWith(t, standIns, ""); err == nil || strings.Contains(said, "skipped") {
			t.Errorf("with %q: %v: %s", standIns, err, said)
		}
	}
}
