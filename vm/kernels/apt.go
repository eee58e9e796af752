package kernels

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/daybook-project/daybook/vm/internal/cache"
)

// apt runs the tools of Debian's package manager. It never installs, needs no
// root, and uses the configured sources of the host.
type apt struct {
	cache.Tools
	// private is a directory for our own package lists, "" for the host's.
	private string
	// sources is our own list of sources, "" for the host's.
	sources string
	// arch is the architecture of the packages, "" for the host's.
	arch string
}

// options returns options that restrict apt to our own directories.
func (a apt) options() []string {
	options := []string{"-o", "APT::Sandbox::User=", "-q"}
	if a.private != "" {
		options = append(options,
			"-o", "Dir::State::lists="+filepath.Join(a.private, "lists"),
			"-o", "Dir::Cache="+a.private)
	}
	if a.sources != "" {
		options = append(options, "-o", "Dir::Etc::sourcelist="+a.sources, "-o", "Dir::Etc::sourceparts=/dev/null")
	}
	if a.arch != "" {
		options = append(options, "-o", "APT::Architecture="+a.arch, "-o", "APT::Architectures="+a.arch)
	}
	return options
}

// run runs a program of apt in a directory and returns its standard output.
func (a apt) run(ctx context.Context, dir, program string, args ...string) (string, error) {
	return a.Output(ctx, dir, program, append(a.options(), args...)...)
}

// ownRelease is the release of Debian that has the kernels of no named suite.
const ownRelease = "bookworm"

// takeSuites makes a list of sources with other suites of Debian, from the archives that
// the host is configured with, and checked by the same keys.
func (a *apt) takeSuites(ctx context.Context, suites ...string) error {
	targets, err := apt{Tools: a.Tools}.run(ctx, "", "apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return err
	}
	list, err := sourcesOf(targets, suites)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.private, 0o755); err != nil {
		return err
	}
	a.sources = filepath.Join(a.private, "sources.list")
	return os.WriteFile(a.sources, []byte(list), 0o644)
}

// sourcesOf returns the lines of sources.list for suites of Debian. The targets are lines ORIGIN LABEL URI
// of the host's sources. Debian's security updates are in an archive beside the main one; a host may
// have no source for them.
func sourcesOf(targets string, suites []string) (string, error) {
	archives := map[string]string{}
	for line := range strings.Lines(targets) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "Debian" && archives[words[1]] == "" {
			archives[words[1]] = words[2]
		}
	}
	if archives["Debian"] == "" {
		return "", errors.New("the host's sources have no archive of Debian; run apt-get update, or see apt-get indextargets")
	}
	var list strings.Builder
	for _, suite := range suites {
		archive := archives["Debian"]
		if strings.HasSuffix(suite, "-security") {
			archive = cmp.Or(archives["Debian-Security"], strings.TrimSuffix(archive, "/")+"-security/")
		}
		fmt.Fprintf(&list, "deb [signed-by=%s] %s %s main\n", debianKeys, archive, suite)
	}
	return list.String(), nil
}

// debianKeys are the keys of Debian's archives, of the package debian-archive-keyring.
const debianKeys = "/usr/share/keyrings/debian-archive-keyring.gpg"

// update fetches fresh package lists into the private directory.
func (a apt) update(ctx context.Context) error {
	for _, dir := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.private, dir), 0o755); err != nil {
			return err
		}
	}
	_, err := a.run(ctx, "", "apt-get", "update")
	return err
}

// offer is one version of a package in one archive.
type offer struct {
	name, version string
	// stable reports whether it is in a release itself, such as bookworm, where
	// it stays longest, not in an addition, such as bookworm-security.
	stable bool
}

// offers lists the versions of packages in the archives.
func (a apt) offers(ctx context.Context, names ...string) ([]offer, error) {
	if len(names) == 0 {
		return nil, nil
	}
	text, err := a.run(ctx, "", "apt-cache", append([]string{"madison"}, names...)...)
	if err != nil {
		return nil, err
	}
	return parseMadison(text), nil
}

// parseMadison reads "name | version | address suite/component arch Packages".
func parseMadison(text string) []offer {
	var offers []offer
	for line := range strings.Lines(text) {
		fields := strings.Split(line, "|")
		if len(fields) != 3 || !strings.HasSuffix(strings.TrimSpace(fields[2]), " Packages") {
			continue
		}
		where := strings.Fields(fields[2])
		suite, _, _ := strings.Cut(where[min(1, len(where)-1)], "/")
		offers = append(offers, offer{
			name:    strings.TrimSpace(fields[0]),
			version: strings.TrimSpace(fields[1]),
			stable:  !strings.Contains(suite, "-"),
		})
	}
	return offers
}

// has reports whether the package lists contain that version.
func (a apt) has(ctx context.Context, name, version string) bool {
	offers, err := a.offers(ctx, name)
	if err != nil {
		return false
	}
	for _, o := range offers {
		if o.version == version {
			return true
		}
	}
	return false
}
