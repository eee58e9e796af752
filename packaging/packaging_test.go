// Package packaging has the tests of the packages; packaging/build makes them.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

// run runs a program and returns what it printed, or ends the test.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// copySource copies what git knows of the source, changes included, to another
// directory, and leads git there to the same repository.
func copySource(t *testing.T) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	gitDir := strings.TrimSpace(run(t, "git", "rev-parse", "--absolute-git-dir"))
	run(t, "sh", "-c", `cd .. && git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - | tar -x -C "$1"`, "sh", to)
	if err := os.WriteFile(filepath.Join(to, ".git"), []byte("gitdir: "+gitDir+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return to
}

// build runs source's packaging/build with the flags, and returns the directory of
// the packages. version is PACKAGE_VERSION.
func build(t *testing.T, source, umask, version string, env []string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "packages")
	command := []string{"-c", `umask "$1" && shift && exec "$@"`, "sh", umask, filepath.Join(source, "packaging/build"), "-o", out}
	cmd := exec.CommandContext(t.Context(), "sh", append(command, flags...)...)
	cmd.Env = append(os.Environ(), "VERSION=v0.1.0+gtest", "PACKAGE_VERSION="+version, "SOURCE_DATE_EPOCH=1790000000", "GIT_OPTIONAL_LOCKS=0")
	cmd.Env = append(cmd.Env, env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, said)
	}
	return out
}

// sums is SHA256SUMS of a directory of packages, checked against the files.
func sums(t *testing.T, dir string) string {
	t.Helper()
	run(t, "sh", "-c", `cd "$1" && sha256sum --quiet -c SHA256SUMS && [ "$(ls | wc -l)" = $(($(wc -l <SHA256SUMS) + 1)) ]`, "sh", dir)
	text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// twice builds here, and in another directory with another umask, language, time zone
// and home. Both builds must be the same.
func twice(t *testing.T, version string, flags ...string) string {
	t.Helper()
	source, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	one := build(t, source, "022", version, nil, flags...)
	elsewhere := copySource(t)
	two := build(t, elsewhere, "077", version, []string{"TZ=Asia/Tokyo", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "USER=other"}, flags...)
	if a, b := sums(t, one), sums(t, two); a != b {
		t.Errorf("two builds of the same source differ:\n%s\n%s", a, b)
	}
	return one
}

// the finds the one file that matches.
func the(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %q, %v; want one", pattern, dir, found, err)
	}
	return found[0]
}

const thisVersion = "0.1.0~20261123000000.1111111"

func TestTwoBuildsOfTheDebianPackageAreTheSame(t *testing.T) {
	needs.Tool(t, "dpkg-deb")
	needs.Tool(t, "git")
	out, err := exec.CommandContext(t.Context(), "go", "-C", "tools", "mod", "download").CombinedOutput()
	needs.That(t, err == nil, "the Go modules of packaging/tools: "+string(out))
	deb := the(t, twice(t, thisVersion, "-a", "amd64", "-f", "deb"), "daybook_*_amd64.deb")
	if got := strings.TrimSpace(run(t, "dpkg-deb", "-f", deb, "Version")); got != thisVersion {
		t.Errorf("the version is %q, want %q", got, thisVersion)
	}
	listed := run(t, "dpkg-deb", "-c", deb)
	for _, file := range []string{"usr/bin/daybook", "usr/share/man/man1/daybook-top.1.gz", "usr/share/bash-completion/completions/daybook",
		"usr/share/zsh/vendor-completions/_daybook", "usr/lib/systemd/system/systemd-nspawn@.service.d/daybook.conf", "usr/share/fish/vendor_completions.d/daybook.fish", "usr/share/doc/daybook/examples/control.yaml",
		"usr/share/doc/daybook/third-party-licences.gz"} {
		if !strings.Contains(listed, " ./"+file+"\n") {
			t.Errorf("%s is not in the package", file)
		}
	}
	units, err := filepath.Glob("../deploy/systemd/*")
	if err != nil || len(units) == 0 {
		t.Fatalf("units: %q, %v", units, err)
	}
	for _, unit := range units {
		if !strings.Contains(listed, " ./usr/lib/systemd/system/"+filepath.Base(unit)+"\n") {
			t.Errorf("%s is not in the package", filepath.Base(unit))
		}
	}
	// Of each unit, the scripts know the name.
	for _, script := range []string{"deb/postinst", "deb/prerm", "deb/postrm", "rpm/preun"} {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, unit := range units {
			if !strings.Contains(string(text), filepath.Base(unit)) {
				t.Errorf("packaging/%s does not name %s", script, filepath.Base(unit))
			}
		}
	}
	for line := range strings.Lines(listed) {
		if fields := strings.Fields(line); fields[1] != "root/root" || strings.Contains(fields[0][4:], "w") {
			t.Errorf("not root's alone to write: %s", line)
		}
	}
}

// A release sorts after the commits before it, and a later commit after an earlier one.
func TestVersionsSortForDpkg(t *testing.T) {
	dpkg := needs.Tool(t, "dpkg")
	versions := sorted(t)
	for i := range len(versions) - 1 {
		run(t, dpkg, "--compare-versions", versions[i], "lt", versions[i+1])
	}
}

// sorted are versions of packaging/version, from the oldest.
func sorted(t *testing.T) []string {
	t.Helper()
	repository := t.TempDir()
	run(t, "git", "-C", repository, "init", "-q")
	if err := os.Mkdir(filepath.Join(repository, "packaging"), 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "cp", "version", filepath.Join(repository, "packaging/version"))
	run(t, "git", "-C", repository, "add", ".")
	commit := func(date string) {
		cmd := exec.CommandContext(t.Context(), "git", "-C", repository, "-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-q", "--allow-empty", "-m", date)
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_DATE="+date, "GIT_COMMITTER_DATE="+date)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	version := func(release string) string {
		return strings.TrimSpace(run(t, filepath.Join(repository, "packaging/version"), release))
	}
	commit("2026-11-23T23:59:59+05:00") // 18:59:59 UTC
	versions := []string{version("v0.1.0")}
	commit("2026-11-23T19:00:00Z")
	versions = append(versions, version("v0.1.0"))
	script, err := os.ReadFile(filepath.Join(repository, "packaging/version"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(repository, "packaging/version"), append(script, '\n'), 0o755); err != nil {
		t.Fatal(err)
	}
	dirty := version("v0.1.0")
	run(t, "git", "-C", repository, "checkout", "-q", ".")
	run(t, "git", "-C", repository, "tag", "v0.1.0")
	versions = append(versions, dirty, version("v0.1.0"))
	commit("2026-11-24T00:00:00Z")
	versions = append(versions, version("v0.1.1"))
	if !strings.HasPrefix(versions[0], "0.1.0~20261123185959.") || versions[2] != versions[1]+".dirty" || versions[3] != "0.1.0" || !slices.IsSorted([]string{versions[0], versions[1]}) {
		t.Errorf("versions: %q", versions)
	}
	return versions
}
